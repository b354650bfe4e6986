//! Is this file an OCSP response worth stapling to this certificate (RFC 6960 section 4.2.1)?
//!
//! Looks at what clients would refuse it for: shape, status, which certificate it speaks of, until when
//! it holds. One that says nothing good any more may be taken all the same, and is not stapled. The responder's signature is left to clients, who know whom they trust. Knows nothing of
//! responders: whoever writes the file fetches it.

use super::certificate::OcspInfo;
use super::grace::Grace;
use super::pem;
use boring::sha::sha256;
use boring::x509::X509Ref;
use chrono::NaiveDateTime;
use std::path::Path;

/// Largest response, in bytes; they have one to three thousand. TLS could carry 16 MiB.
const MAX_BYTES: usize = 64 << 10;

/// `id-pkix-ocsp-basic`, 1.3.6.1.5.5.7.48.1.1.
const BASIC: [u8; 9] = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const OCTET_STRING: u8 = 0x04;
const OBJECT: u8 = 0x06;
const ENUMERATED: u8 = 0x0a;
const GENERALIZED_TIME: u8 = 0x18;
/// `[0] EXPLICIT`.
const CONTEXT_0: u8 = 0xa0;
/// `certStatus` `good`, `[0] IMPLICIT NULL`.
const GOOD: u8 = 0x80;

/// Why a file is not stapled, and what to do about it.
pub type Refusal = (String, Option<&'static str>);

/// Tells responses apart: the SHA-256 of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseId([u8; 32]);

/// A response about a certificate.
pub struct Response {
    /// Which one it is.
    pub id: ResponseId,
    /// As it is stapled; `None` = it is not.
    pub stapled: Option<Vec<u8>>,
    /// Until when it may be stapled, in seconds since 1970.
    pub next_update: Option<i64>,
    trouble: Option<String>,
}

impl Response {
    /// What operators are told of it.
    pub fn info(&self) -> OcspInfo {
        OcspInfo { next_update: self.next_update, trouble: self.trouble.clone() }
    }
}

/// Reads a response and checks it against the certificate it is to be stapled to. By `grace`, one that says
/// nothing good any more is taken and not stapled.
///
/// # Errors
/// The reason, and a hint where there is one.
pub fn load(file: &Path, certificate: &X509Ref, grace: &Grace) -> Result<Response, Refusal> {
    let response = pem::read(file).map_err(|reason| (reason, None))?;
    let named = |(what, hint): Refusal| (format!("{} {what}", file.display()), hint);
    let parsed = parsed(&response).map_err(named)?;
    let id = ResponseId(sha256(&response));
    match judge(parsed, certificate, grace.now).map_err(named) {
        Ok(next_update) => Ok(Response { id, stapled: Some(response), next_update, trouble: None }),
        Err((trouble, _)) if grace.response(&id) => {
            Ok(Response { id, stapled: None, next_update: None, trouble: Some(trouble) })
        }
        Err(refusal) => Err(refusal),
    }
}

fn parsed(response: &[u8]) -> Result<Parsed<'_>, Refusal> {
    if response.len() > MAX_BYTES {
        return Err(("is larger than 64 KiB".to_owned(), None));
    }
    let hint = "it must be DER, such as `openssl ocsp -respout` writes";
    parse(response).ok_or_else(|| ("is not an OCSP response".to_owned(), Some(hint)))
}

/// Whether it says something good about this certificate now, and until when.
fn judge(parsed: Parsed<'_>, certificate: &X509Ref, now: i64) -> Result<Option<i64>, Refusal> {
    let refuse = |what: &str, hint| Err((what.to_owned(), hint));
    let single = match parsed {
        Parsed::Answer(single) => single,
        Parsed::Unsuccessful(status) => {
            return refuse(
                &format!("says that the responder failed (status {status})"),
                Some("fetch it anew"),
            );
        }
    };
    let serial = certificate.serial_number().to_bn().map(|serial| serial.to_vec()).unwrap_or_default();
    let spoken_of = single.serial.iter().skip_while(|byte| **byte == 0);
    if !spoken_of.eq(&serial) {
        return refuse(
            "speaks of another certificate",
            Some("after a renewal, fetch a response for the new one"),
        );
    }
    if !single.good {
        return refuse("says that the certificate is revoked or not known", Some("replace the certificate"));
    }
    match single.next_update {
        Some(until) if until <= now => {
            let until = pem::date(until);
            refuse(
                &format!("was good until {until}"),
                Some("fetch it anew, or leave `ocsp` out: clients refuse it"),
            )
        }
        until => Ok(until),
    }
}

enum Parsed<'a> {
    Answer(Single<'a>),
    Unsuccessful(u8),
}

/// The first `SingleResponse`; responders give one.
struct Single<'a> {
    serial: &'a [u8],
    good: bool,
    next_update: Option<i64>,
}

/// Takes an `OCSPResponse` apart; `None` when it is none, or has anything behind it.
fn parse(response: &[u8]) -> Option<Parsed<'_>> {
    let mut file = Der(response);
    let mut outer = file.enter(SEQUENCE)?;
    let &[status] = outer.take(ENUMERATED)? else { return None };
    if !file.is_empty() {
        return None;
    }
    if status != 0 {
        return Some(Parsed::Unsuccessful(status));
    }
    let mut bytes = outer.enter(CONTEXT_0)?.enter(SEQUENCE)?;
    if bytes.take(OBJECT)? != BASIC {
        return None;
    }
    let mut basic = bytes.enter(OCTET_STRING)?.enter(SEQUENCE)?;
    let mut data = basic.enter(SEQUENCE)?;
    data.skip_if(CONTEXT_0);
    // The responder, by name or by key.
    data.any()?;
    data.take(GENERALIZED_TIME)?;
    let mut single = data.enter(SEQUENCE)?.enter(SEQUENCE)?;
    let mut certificate = single.enter(SEQUENCE)?;
    certificate.take(SEQUENCE)?;
    certificate.take(OCTET_STRING)?;
    certificate.take(OCTET_STRING)?;
    let serial = certificate.take(INTEGER)?;
    let (status, _) = single.any()?;
    single.take(GENERALIZED_TIME)?;
    let next_update = match single.enter(CONTEXT_0) {
        Some(mut next) => Some(time(next.take(GENERALIZED_TIME)?)?),
        None => None,
    };
    Some(Parsed::Answer(Single { serial, good: status == GOOD, next_update }))
}

/// `YYYYMMDDHHMMSSZ`, the one form RFC 6960 allows, in seconds since 1970.
fn time(written: &[u8]) -> Option<i64> {
    let written = std::str::from_utf8(written).ok()?;
    Some(NaiveDateTime::parse_from_str(written, "%Y%m%d%H%M%SZ").ok()?.and_utc().timestamp())
}

/// What is left of the contents of a DER value.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next value: its tag and its contents. Long forms up to three bytes of length, which is more
    /// than a file may have.
    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (length, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x0f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
            }
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, contents))
    }

    /// The contents of the next value if it has this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let mut ahead = Der(self.0);
        let (found, contents) = ahead.any()?;
        (found == tag).then(|| {
            self.0 = ahead.0;
            contents
        })
    }

    /// The same, to be read on.
    fn enter(&mut self, tag: u8) -> Option<Der<'a>> {
        self.take(tag).map(Der)
    }

    fn skip_if(&mut self, tag: u8) {
        let _ = self.take(tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::fixtures::{Authority, DAY, Issued, NOW, ec_key};

    fn check(response: &[u8], certificate: &X509Ref, now: i64) -> Result<Option<i64>, Refusal> {
        judge(parsed(response)?, certificate, now)
    }

    fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let contents = parts.concat();
        let mut value = vec![tag];
        match contents.len() {
            short @ 0..0x80 => value.push(short as u8),
            long => value.extend([0x82, (long >> 8) as u8, long as u8]),
        }
        [value, contents].concat()
    }

    /// A response without signature, which is not looked at.
    fn response(serial: &[u8], status: u8, next_update: &str) -> Vec<u8> {
        let id = der(
            SEQUENCE,
            &[
                &der(SEQUENCE, &[]),
                &der(OCTET_STRING, &[b"n"]),
                &der(OCTET_STRING, &[b"k"]),
                &der(INTEGER, &[serial]),
            ],
        );
        let at = der(GENERALIZED_TIME, &[b"20270101000000Z"]);
        let next = der(CONTEXT_0, &[&der(GENERALIZED_TIME, &[next_update.as_bytes()])]);
        let single = der(SEQUENCE, &[&id, &der(status, &[]), &at, &next]);
        let data = der(SEQUENCE, &[&der(0xa2, &[b"key"]), &at, &der(SEQUENCE, &[&single])]);
        let basic = der(SEQUENCE, &[&data]);
        let bytes = der(SEQUENCE, &[&der(OBJECT, &[&BASIC]), &der(OCTET_STRING, &[&basic])]);
        der(SEQUENCE, &[&der(ENUMERATED, &[&[0]]), &der(CONTEXT_0, &[&bytes])])
    }

    fn leaf() -> Issued {
        Authority::root("root").issue(&["a.test"], &ec_key(), NOW - DAY, NOW + DAY)
    }

    fn serial(leaf: &Issued) -> Vec<u8> {
        leaf.certificate.serial_number().to_bn().unwrap().to_vec()
    }

    #[test]
    fn what_clients_would_refuse_is_refused() {
        let leaf = leaf();
        let (own, later, before) = (serial(&leaf), "20270601000000Z", "20270101000000Z");
        let judged = |response: &[u8]| {
            check(response, &leaf.certificate, NOW).map_err(|(reason, _)| reason).err().unwrap_or_default()
        };
        assert_eq!(judged(&response(&own, GOOD, later)), "");
        assert_eq!(
            judged(&response(&[&[0], &own[..]].concat(), GOOD, later)),
            "",
            "a leading zero is no other"
        );
        for (bytes, reason) in [
            (response(&[9, 9, 9, 9], GOOD, later), "another certificate"),
            (response(&own, 0xa1, later), "revoked"),
            (response(&own, GOOD, before), "was good until 2027-01-01"),
            (response(&own, GOOD, "soon"), "not an OCSP response"),
            (der(SEQUENCE, &[&der(ENUMERATED, &[&[3]])]), "failed (status 3)"),
            ([response(&own, GOOD, later), vec![0]].concat(), "not an OCSP response"),
            (Vec::new(), "not an OCSP response"),
            (vec![0x30; MAX_BYTES + 1], "larger than 64 KiB"),
        ] {
            let judged = judged(&bytes);
            assert!(judged.contains(reason), "{reason}: {judged}");
        }
    }

    #[test]
    fn a_response_that_is_cut_short_or_changed_never_panics() {
        let leaf = leaf();
        let whole = response(&serial(&leaf), GOOD, "20270601000000Z");
        for end in 0..whole.len() {
            assert!(check(&whole[..end], &leaf.certificate, NOW).is_err());
        }
        for place in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0x80, 0x81, 0x83, 0xff] {
                let mut changed = whole.clone();
                changed[place] = byte;
                let _ = check(&changed, &leaf.certificate, NOW);
            }
        }
    }
}
