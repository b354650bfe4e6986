//! Certificates, files and a TLS origin for this room's tests.

use crate::config::{Source, UpstreamTlsConfig};
use boring::asn1::{Asn1Integer, Asn1Time};
use boring::bn::BigNum;
use boring::ec::{EcGroup, EcKey};
use boring::hash::MessageDigest;
use boring::nid::Nid;
use boring::pkey::{PKey, Private};
use boring::ssl::{SslAcceptor, SslMethod};
use boring::x509::extension::{BasicConstraints, SubjectAlternativeName};
use boring::x509::{X509, X509Builder, X509Name, X509NameBuilder};
use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;

/// Verified TLS to this name, with the system's authorities.
pub fn tls(server_name: &str) -> UpstreamTlsConfig {
    let server_name = Some(server_name.to_owned());
    UpstreamTlsConfig { server_name, ca: None, cert: None, key: None, verify: true }
}

/// A certificate and its key.
pub struct Issued {
    certificate: X509,
    key: PKey<Private>,
}

impl Issued {
    pub fn cert_pem(&self) -> Vec<u8> {
        self.certificate.to_pem().unwrap()
    }

    pub fn key_pem(&self) -> Vec<u8> {
        self.key.private_key_to_pem_pkcs8().unwrap()
    }
}

/// A certificate authority. All of them have the same name and differ in their keys.
pub struct Authority(Issued);

impl Authority {
    pub fn new() -> Authority {
        let key = ec_key();
        let mut builder = start("authority", &key);
        builder.append_extension(&BasicConstraints::new().critical().ca().build().unwrap()).unwrap();
        builder.sign(&key, MessageDigest::sha256()).unwrap();
        Authority(Issued { certificate: builder.build(), key })
    }

    /// A certificate for a name or an address.
    pub fn issue(&self, name: &str) -> Issued {
        let key = ec_key();
        let mut builder = start(name, &key);
        let mut san = SubjectAlternativeName::new();
        let san = if name.parse::<IpAddr>().is_ok() { san.ip(name) } else { san.dns(name) };
        let san = san.build(&builder.x509v3_context(None, None));
        builder.append_extension(&san.unwrap()).unwrap();
        builder.sign(&self.0.key, MessageDigest::sha256()).unwrap();
        Issued { certificate: builder.build(), key }
    }

    pub fn cert_pem(&self) -> Vec<u8> {
        self.0.cert_pem()
    }
}

/// A temporary folder with a configuration file in it.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn source(&self) -> Source {
        crate::config::load::load_text(&self.0.path().join("portcullis.yaml"), "routes: []").source
    }

    /// Writes a file; gives its path relative to the folder.
    pub fn write(&self, name: &str, contents: &[u8]) -> PathBuf {
        std::fs::write(self.0.path().join(name), contents).unwrap();
        name.into()
    }
}

/// An origin that shakes hands and then holds every connection until its peer closes it.
pub fn tls_origin(issued: &Issued) -> SocketAddr {
    let mut acceptor = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls()).unwrap();
    acceptor.set_certificate(&issued.certificate).unwrap();
    acceptor.set_private_key(&issued.key).unwrap();
    let acceptor = acceptor.build();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let acceptor = acceptor.clone();
            std::thread::spawn(move || {
                if let Ok(mut stream) = acceptor.accept(stream) {
                    let _ = stream.read(&mut [0]);
                }
            });
        }
    });
    address
}

fn ec_key() -> PKey<Private> {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap()
}

fn named(name: &str) -> X509Name {
    let mut builder = X509NameBuilder::new().unwrap();
    builder.append_entry_by_nid(Nid::COMMONNAME, name).unwrap();
    builder.build()
}

/// Issued by `authority`, valid now.
fn start(name: &str, key: &PKey<Private>) -> X509Builder {
    let mut builder = X509::builder().unwrap();
    builder.set_version(2).unwrap();
    let serial = BigNum::from_u32(7).unwrap();
    builder.set_serial_number(&Asn1Integer::from_bn(&serial).unwrap()).unwrap();
    builder.set_subject_name(&named(name)).unwrap();
    builder.set_issuer_name(&named("authority")).unwrap();
    builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
    builder.set_pubkey(key).unwrap();
    builder
}
