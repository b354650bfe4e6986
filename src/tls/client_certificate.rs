//! What is known of a client that showed a certificate: subject, alternative names, fingerprint.
//!
//! Only made of certificates the handshake has verified, this one's or the one a resumed session began
//! with. Knows nothing of what a name demands, nor of headers' names.

use super::certificate::{hex, subject, validity};
use boring::hash::MessageDigest;
use boring::ssl::SslRef;
use boring::x509::X509Ref;
use http::HeaderValue;
use std::fmt::Write;

/// Longest subject, and longest list of names, in bytes: both go into a header.
const MAX_BYTES: usize = 4096;

/// A verified client. The values are ready to be sent to upstreams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// As RFC 4514 writes names; empty for a certificate without one.
    pub subject: HeaderValue,
    /// `DNS:…`, `URI:…` and `email:…`, in the order of the certificate.
    pub sans: Vec<String>,
    /// The same in one list, each made safe to be split at commas; entries beyond 4 KiB are left out.
    pub san_list: HeaderValue,
    /// SHA-256 of the certificate, lower-case hexadecimal.
    pub fingerprint: HeaderValue,
}

/// Why a verified certificate is of no use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// A resumed session outlived the certificate it began with.
    #[error("the client's certificate has expired since")]
    Expired,
    /// Its subject is longer than 4 KiB, or cannot be written.
    #[error("the subject of the client's certificate cannot be written")]
    Subject,
}

impl ClientCertificate {
    /// The certificate of a finished handshake, if the client has shown one; `now` is in seconds since
    /// 1970.
    ///
    /// # Errors
    /// When it must not be acted on.
    pub fn of(ssl: &SslRef, now: impl FnOnce() -> i64) -> Result<Option<ClientCertificate>, Unusable> {
        let Some(certificate) = ssl.peer_certificate() else { return Ok(None) };
        // The handshake checks dates; resuming a session does not.
        if validity(&certificate).is_none_or(|(_, until)| until < now()) {
            return Err(Unusable::Expired);
        }
        Self::read(&certificate).map(Some)
    }

    fn read(certificate: &X509Ref) -> Result<ClientCertificate, Unusable> {
        let subject = Some(subject(certificate)).filter(|subject| subject.len() <= MAX_BYTES);
        let subject = subject.and_then(|subject| HeaderValue::try_from(subject).ok());
        let digest = certificate.digest(MessageDigest::sha256()).map_err(|_| Unusable::Subject)?;
        let sans = alternative_names(certificate);
        Ok(ClientCertificate {
            subject: subject.ok_or(Unusable::Subject)?,
            san_list: HeaderValue::try_from(list(&sans)).map_err(|_| Unusable::Subject)?,
            sans,
            fingerprint: HeaderValue::try_from(hex(&digest)).map_err(|_| Unusable::Subject)?,
        })
    }
}

/// Other kinds of names (addresses, directory names) identify no client by common practice.
fn alternative_names(certificate: &X509Ref) -> Vec<String> {
    let names = certificate.subject_alt_names();
    let named = names.iter().flatten().filter_map(|name| {
        let kinds = [("DNS", name.dnsname()), ("URI", name.uri()), ("email", name.email())];
        kinds.into_iter().find_map(|(kind, name)| Some(format!("{kind}:{}", name?)))
    });
    named.collect()
}

/// A list in which no name can pass for two: its commas, and whatever is not visible ASCII, are
/// percent-encoded.
fn list(names: &[String]) -> String {
    let mut list = String::new();
    for name in names {
        let before = list.len();
        if !list.is_empty() {
            list.push(',');
        }
        for byte in name.bytes() {
            match byte {
                b'!'..=b'~' if !matches!(byte, b',' | b'"' | b'\\') => list.push(char::from(byte)),
                _ => _ = write!(list, "%{byte:02X}"),
            }
        }
        if list.len() > MAX_BYTES {
            list.truncate(before);
            break;
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::fixtures::{Authority, DAY, NOW, ec_key};

    #[test]
    fn a_certificate_is_told_in_header_values() {
        let issued =
            Authority::root("root").issue(&["a.test", "10.0.0.1", "b.test"], &ec_key(), NOW - DAY, NOW);
        let client = ClientCertificate::read(&issued.certificate).unwrap();
        assert_eq!(client.subject, "CN=leaf");
        assert_eq!(client.sans, ["DNS:a.test", "DNS:b.test"]);
        assert_eq!(client.san_list, "DNS:a.test,DNS:b.test");
        assert_eq!(client.fingerprint.len(), 64);
    }

    #[test]
    fn no_name_passes_for_two() {
        let names =
            ["URI:x,DNS:admin".to_owned(), "DNS:\u{e9}\n".to_owned(), "URI:spiffe://a/b%2C".to_owned()];
        assert_eq!(list(&names), "URI:x%2CDNS:admin,DNS:%C3%A9%0A,URI:spiffe://a/b%2C");
    }

    #[test]
    fn a_list_ends_before_it_is_too_long() {
        let names: Vec<String> = (0..1000).map(|number| format!("DNS:host-{number}.test")).collect();
        let list = list(&names);
        assert!(list.len() <= MAX_BYTES && list.ends_with(".test"), "{list}");
    }
}
