//! What do operators see of a certificate? Dates, names, issuer, serial, fingerprint, key.
//!
//! Read once, when a snapshot is compiled; knows nothing of files.

use super::names::CoveredNames;
use super::pem::KeyPair;
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
    /// The first name it covers; distinct among the certificates of a store that cover DNS names.
    pub name: String,
    /// Everything it covers: DNS names, then addresses.
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
}

impl CertificateInfo {
    /// Describes the leaf of a chain; `None` for an empty chain.
    pub fn of(pair: &KeyPair, covered: &CoveredNames, default: bool) -> Option<CertificateInfo> {
        let leaf = pair.chain.first()?;
        let names = covered.to_strings();
        let (not_before, not_after) = validity(leaf)?;
        Some(CertificateInfo {
            name: names.first().cloned().unwrap_or_default(),
            names,
            not_before,
            not_after,
            issuer: leaf.issuer_name().print_ex(RFC2253).unwrap_or_default(),
            serial: serial(leaf).unwrap_or_default(),
            fingerprint_sha256: leaf.digest(MessageDigest::sha256()).map(|d| hex(&d)).unwrap_or_default(),
            default,
            key_type: key_type(&pair.key),
        })
    }
}

/// Start and end of validity in seconds since 1970; `None` for dates that do not exist.
pub fn validity(certificate: &X509Ref) -> Option<(i64, i64)> {
    Some((unix(certificate.not_before())?, unix(certificate.not_after())?))
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
