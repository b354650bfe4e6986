//! What do operators see of a certificate? Dates, names, issuer, serial, fingerprint, key.
//!
//! Read once, when a snapshot is compiled; knows nothing of files.

use super::candidates::Candidate;
use super::client_auth::ClientAuth;
use super::ocsp::Response;
use boring::asn1::{Asn1Time, Asn1TimeRef};
use boring::error::ErrorStack;
use boring::hash::MessageDigest;
use boring::pkey::{HasPublic, Id, PKeyRef};
use boring::x509::X509Ref;
use std::fmt::Write;

/// `XN_FLAG_RFC2253`: names as RFC 4514 writes them, control characters escaped.
const RFC2253: i32 = 0x0111_0317;

/// One certificate of the store, as `/v1/certificates` and the metrics show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The first name it serves. Those of one name and several kinds of keys share it.
    pub name: String,
    /// Everything it serves: DNS names, then addresses.
    pub names: Vec<String>,
    /// Start of validity, seconds since 1970.
    pub not_before: i64,
    /// End of validity, seconds since 1970.
    pub not_after: i64,
    /// Who signed it, as RFC 4514 writes names.
    pub issuer: String,
    /// Serial number, lower-case hexadecimal.
    pub serial: String,
    /// SHA-256 of the certificate, lower-case hexadecimal.
    pub fingerprint_sha256: String,
    /// Presented to clients without a server name.
    pub default: bool,
    /// Such as `RSA 2048` or `ECDSA P-256`.
    pub key_type: String,
    /// What is known of its OCSP response; `None` = none is configured.
    pub ocsp: Option<OcspInfo>,
    /// When the last authority of its `client_auth` expires, seconds since 1970; `None` without one.
    pub client_authorities_until: Option<i64>,
}

/// The OCSP response of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OcspInfo {
    /// Until when it holds, seconds since 1970; `None` = it does not say.
    pub next_update: Option<i64>,
    /// Why it was not stapled from the start.
    pub trouble: Option<String>,
}

impl OcspInfo {
    /// Until when it can be stapled, seconds since 1970: 0 when it cannot; `None` when for ever.
    pub fn holds_until(&self) -> Option<i64> {
        if self.trouble.is_some() { Some(0) } else { self.next_update }
    }

    /// Whether clients that ask get it.
    pub fn is_stapled(&self, now: i64) -> bool {
        self.trouble.is_none() && self.next_update.is_none_or(|until| now < until)
    }
}

impl CertificateInfo {
    /// Describes what a candidate presents; `None` for an empty chain.
    pub fn of(candidate: &Candidate, default: bool) -> Option<CertificateInfo> {
        let leaf = candidate.pair.chain.first()?;
        let names = candidate.shown_names();
        let (not_before, not_after) = validity(leaf)?;
        Some(CertificateInfo {
            name: names.first().cloned().unwrap_or_default(),
            names,
            not_before,
            not_after,
            issuer: leaf.issuer_name().print_ex(RFC2253).unwrap_or_default(),
            serial: serial(leaf).unwrap_or_default(),
            fingerprint_sha256: fingerprint(leaf),
            default,
            key_type: key_type(&candidate.pair.key),
            ocsp: candidate.ocsp.as_ref().map(Response::info),
            client_authorities_until: candidate.client_auth.as_ref().map(ClientAuth::valid_until),
        })
    }
}

/// Start and end of validity in seconds since 1970; `None` for dates that do not exist.
pub fn validity(certificate: &X509Ref) -> Option<(i64, i64)> {
    Some((unix(certificate.not_before())?, unix(certificate.not_after())?))
}

/// SHA-256, lower-case hexadecimal.
pub fn fingerprint(certificate: &X509Ref) -> String {
    certificate.digest(MessageDigest::sha256()).map(|digest| hex(&digest)).unwrap_or_default()
}

/// The subject, as RFC 4514 writes names.
pub fn subject(certificate: &X509Ref) -> String {
    certificate.subject_name().print_ex(RFC2253).unwrap_or_default()
}

/// Kind and strength of a key.
pub fn key_type<T: HasPublic>(key: &PKeyRef<T>) -> String {
    match key.id() {
        Id::RSA => format!("RSA {}", key.bits()),
        Id::EC => format!("ECDSA P-{}", key.bits()),
        Id::ED25519 => "Ed25519".to_owned(),
        other => format!("type {}", other.as_raw()),
    }
}

fn unix(time: &Asn1TimeRef) -> Option<i64> {
    let since = Asn1Time::from_unix(0).ok()?.diff(time).ok()?;
    Some(i64::from(since.days) * 86_400 + i64::from(since.secs))
}

fn serial(certificate: &X509Ref) -> Result<String, ErrorStack> {
    Ok(certificate.serial_number().to_bn()?.to_hex_str()?.to_ascii_lowercase())
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
