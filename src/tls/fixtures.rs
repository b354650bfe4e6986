//! Certificates for this room's tests: authorities, leaves and a folder to write them to.

use super::grace::{Grace, Known};
use crate::config::{CertificateConfig, Source};
use boring::asn1::{Asn1Integer, Asn1Time};
use boring::bn::BigNum;
use boring::ec::{EcGroup, EcKey};
use boring::hash::MessageDigest;
use boring::nid::Nid;
use boring::pkey::{PKey, Private};
use boring::rsa::Rsa;
use boring::x509::extension::{BasicConstraints, SubjectAlternativeName};
use boring::x509::{X509, X509Builder, X509Name, X509NameBuilder};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// 2027-01-15 08:00 UTC.
pub const NOW: i64 = 1_800_000_000;
pub const DAY: i64 = 86_400;

pub fn ec_key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

pub fn rsa_key(bits: u32) -> PKey<Private> {
    PKey::from_rsa(Rsa::generate(bits).unwrap()).unwrap()
}

/// A certificate and its key.
pub struct Issued {
    pub certificate: X509,
    pub key: PKey<Private>,
}

impl Issued {
    pub fn cert_pem(&self) -> Vec<u8> {
        self.certificate.to_pem().unwrap()
    }

    pub fn key_pem(&self) -> Vec<u8> {
        self.key.private_key_to_pem_pkcs8().unwrap()
    }
}

/// A certificate authority, valid from a year before [`NOW`] to ten years after it.
pub struct Authority {
    name: X509Name,
    issued: Issued,
}

impl Authority {
    pub fn root(name: &str) -> Authority {
        let key = ec_key();
        let name = distinguished(name);
        let certificate = authority_certificate(&name, &key, &name, &key);
        Authority { name, issued: Issued { certificate, key } }
    }

    pub fn subordinate(&self, name: &str) -> Authority {
        let key = ec_key();
        let name = distinguished(name);
        let certificate = authority_certificate(&name, &key, &self.name, &self.issued.key);
        Authority { name, issued: Issued { certificate, key } }
    }

    /// A leaf for `names`; those that parse as addresses become address entries.
    pub fn issue(&self, names: &[&str], key: &PKey<Private>, not_before: i64, not_after: i64) -> Issued {
        let mut builder = start(&distinguished("leaf"), key, &self.name, not_before, not_after);
        if !names.is_empty() {
            let mut san = SubjectAlternativeName::new();
            for name in names {
                match name.parse::<std::net::IpAddr>() {
                    Ok(_) => san.ip(name),
                    Err(_) => san.dns(name),
                };
            }
            let san = san.build(&builder.x509v3_context(None, None)).unwrap();
            builder.append_extension(&san).unwrap();
        }
        builder.sign(&self.issued.key, MessageDigest::sha256()).unwrap();
        Issued { certificate: builder.build(), key: key.clone() }
    }

    pub fn cert_pem(&self) -> Vec<u8> {
        self.issued.cert_pem()
    }
}

/// A temporary folder with a configuration file in it.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    /// The source of a configuration that lies in the folder.
    pub fn source(&self) -> Source {
        crate::config::load::load_text(&self.0.path().join("portcullis.yaml"), "routes: []").source
    }

    /// Writes a file; gives its path.
    pub fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Writes the two files and names them.
    pub fn pair(&self, cert: &str, cert_pem: &[u8], key: &str, key_pem: &[u8]) -> CertificateConfig {
        let (cert, key) = (self.write(cert, cert_pem), self.write(key, key_pem));
        CertificateConfig { cert, key, ..CertificateConfig::default() }
    }

    /// Writes a leaf under names of its own.
    pub fn add(&self, issued: &Issued) -> CertificateConfig {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (cert, key) = (format!("{number}.pem"), format!("{number}.key"));
        self.pair(&cert, &issued.cert_pem(), &key, &issued.key_pem())
    }
}

fn distinguished(name: &str) -> X509Name {
    let mut builder = X509NameBuilder::new().unwrap();
    builder.append_entry_by_nid(Nid::COMMONNAME, name).unwrap();
    builder.build()
}

fn authority_certificate(
    name: &X509Name,
    key: &PKey<Private>,
    issuer: &X509Name,
    signer: &PKey<Private>,
) -> X509 {
    let mut builder = start(name, key, issuer, NOW - 365 * DAY, NOW + 3_650 * DAY);
    builder.append_extension(&BasicConstraints::new().critical().ca().build().unwrap()).unwrap();
    builder.sign(signer, MessageDigest::sha256()).unwrap();
    builder.build()
}

fn start(
    name: &X509Name,
    key: &PKey<Private>,
    issuer: &X509Name,
    not_before: i64,
    not_after: i64,
) -> X509Builder {
    static SERIAL: AtomicU32 = AtomicU32::new(1);
    let serial = BigNum::from_u32(SERIAL.fetch_add(1, Ordering::Relaxed)).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder.set_serial_number(&Asn1Integer::from_bn(&serial).unwrap()).unwrap();
    builder.set_subject_name(name).unwrap();
    builder.set_issuer_name(issuer).unwrap();
    builder.set_not_before(&Asn1Time::from_unix(not_before).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::from_unix(not_after).unwrap()).unwrap();
    builder.set_pubkey(key).unwrap();
    builder
}

/// As a reload goes by it when nothing of what it brings is known.
pub fn strict() -> Grace {
    Grace::for_known(NOW, Known::default())
}
