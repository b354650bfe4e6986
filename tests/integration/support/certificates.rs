//! Certificate authorities and certificates made on the spot.
//!
//! Knows nothing of the gateway; writes PEM where it is told.

use boring::asn1::Asn1Time;
use boring::bn::{BigNum, MsbOption};
use boring::ec::{EcGroup, EcKey};
use boring::hash::MessageDigest;
use boring::nid::Nid;
use boring::pkey::{PKey, Private};
use boring::rsa::Rsa;
use boring::x509::extension::{BasicConstraints, KeyUsage, SubjectAlternativeName};
use boring::x509::{X509, X509Builder, X509Name, X509NameBuilder};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

const DAY: i64 = 86_400;

/// A self-signed authority.
pub struct Authority {
    certificate: X509,
    key: PKey<Private>,
}

/// A certificate with its key.
#[derive(Clone)]
pub struct Identity {
    /// The leaf.
    pub certificate: X509,
    /// Its key.
    pub key: PKey<Private>,
    issuer: X509,
}

/// A certificate to be: names, key type, validity.
pub struct Leaf {
    names: Vec<String>,
    rsa: bool,
    not_before: i64,
    not_after: i64,
}

impl Authority {
    /// A new one, valid for a year.
    pub fn new(name: &str) -> Self {
        let key = ec_key();
        let subject = common_name(name);
        let mut builder = builder(&subject, &subject, &key, now() - DAY, now() + 365 * DAY);
        let constraints = BasicConstraints::new().critical().ca().build().unwrap();
        builder.append_extension(&constraints).unwrap();
        builder.append_extension(&KeyUsage::new().critical().key_cert_sign().build().unwrap()).unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        Authority { certificate: builder.build(), key }
    }

    /// A P-256 certificate for these names, valid now.
    pub fn issue(&self, names: &[&str]) -> Identity {
        Leaf::new(names).sign(self)
    }

    /// Writes its certificate; gives the path.
    pub fn write(&self, dir: &Path, name: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, self.certificate.to_pem().unwrap()).unwrap();
        path
    }

    /// Writes its key.
    pub fn write_key(&self, dir: &Path, name: &str) {
        std::fs::write(dir.join(name), self.key.private_key_to_pem_pkcs8().unwrap()).unwrap();
    }
}

impl Leaf {
    /// P-256, valid from yesterday for 90 days.
    pub fn new(names: &[&str]) -> Self {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Leaf { names, rsa: false, not_before: now() - DAY, not_after: now() + 90 * DAY }
    }

    /// With an RSA key of 2,048 bits.
    pub fn rsa(mut self) -> Self {
        self.rsa = true;
        self
    }

    /// Valid from and until so many days from now.
    pub fn days(mut self, from: i64, until: i64) -> Self {
        (self.not_before, self.not_after) = (now() + from * DAY, now() + until * DAY);
        self
    }

    /// Valid for so many seconds from now.
    pub fn seconds(mut self, seconds: i64) -> Self {
        self.not_after = now() + seconds;
        self
    }

    /// Makes the key and has the certificate signed.
    pub fn sign(self, authority: &Authority) -> Identity {
        let key = if self.rsa { PKey::from_rsa(Rsa::generate(2048).unwrap()).unwrap() } else { ec_key() };
        let subject = common_name(self.names.first().map_or("nobody", String::as_str));
        let issuer = authority.certificate.subject_name();
        let mut builder = builder(&subject, issuer, &key, self.not_before, self.not_after);
        builder.append_extension(&BasicConstraints::new().build().unwrap()).unwrap();
        let mut names = SubjectAlternativeName::new();
        for name in &self.names {
            if name.parse::<IpAddr>().is_ok() {
                names.ip(name)
            } else if name.contains("://") {
                names.uri(name)
            } else if name.contains('@') {
                names.email(name)
            } else {
                names.dns(name)
            };
        }
        let names = names.build(&builder.x509v3_context(Some(&authority.certificate), None)).unwrap();
        builder.append_extension(&names).unwrap();
        builder.sign(&authority.key, MessageDigest::sha256()).unwrap();
        Identity { certificate: builder.build(), key, issuer: authority.certificate.clone() }
    }
}

impl Identity {
    /// The chain, leaf first.
    pub fn chain_pem(&self) -> Vec<u8> {
        [self.certificate.to_pem().unwrap(), self.issuer.to_pem().unwrap()].concat()
    }

    /// The chain in the wrong order.
    pub fn reversed_chain_pem(&self) -> Vec<u8> {
        [self.issuer.to_pem().unwrap(), self.certificate.to_pem().unwrap()].concat()
    }

    /// The key.
    pub fn key_pem(&self) -> Vec<u8> {
        self.key.private_key_to_pem_pkcs8().unwrap()
    }

    /// Writes `NAME.pem` and `NAME.key`.
    pub fn write(&self, dir: &Path, name: &str) {
        std::fs::write(dir.join(format!("{name}.pem")), self.chain_pem()).unwrap();
        std::fs::write(dir.join(format!("{name}.key")), self.key_pem()).unwrap();
    }

    /// Whether `presented` is this certificate.
    pub fn is(&self, presented: &X509) -> bool {
        self.certificate.to_der().unwrap() == presented.to_der().unwrap()
    }
}

fn builder(
    subject: &X509Name,
    issuer: &boring::x509::X509NameRef,
    key: &PKey<Private>,
    from: i64,
    until: i64,
) -> X509Builder {
    let mut serial = BigNum::new().unwrap();
    serial.rand(127, MsbOption::MAYBE_ZERO, false).unwrap();
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    builder.set_serial_number(&serial.to_asn1_integer().unwrap()).unwrap();
    builder.set_subject_name(subject).unwrap();
    builder.set_issuer_name(issuer).unwrap();
    builder.set_pubkey(key).unwrap();
    builder.set_not_before(&Asn1Time::from_unix(from).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::from_unix(until).unwrap()).unwrap();
    builder
}

fn common_name(name: &str) -> X509Name {
    let mut builder = X509NameBuilder::new().unwrap();
    builder.append_entry_by_text("CN", name).unwrap();
    builder.build()
}

fn ec_key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

#[test]
fn a_leaf_is_signed_by_its_authority() {
    let authority = Authority::new("root");
    let leaf = Leaf::new(&["app.test", "127.0.0.1"]).rsa().sign(&authority);
    assert!(leaf.certificate.verify(&authority.key).unwrap());
    assert_eq!(leaf.certificate.subject_alt_names().unwrap().len(), 2);
}
