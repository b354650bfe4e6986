//! How do we talk to an upstream? Its TLS settings, with the files they name read and checked.
//!
//! Pingora 0.9.1 verifies against the peer's own authorities when it has some, else against the system's,
//! which it finds when it starts; with an empty server name it would verify nothing, so it gets one whenever
//! something is to be verified ([`super::identity`]).

use crate::config::{
    EndpointAddress, EndpointConfig, Problem, Problems, Source, UpstreamProtocol, UpstreamTlsConfig, file,
};
use boring::pkey::{PKey, Private};
use boring::x509::X509;
use pingora_core::protocols::tls::CaType;
use pingora_core::utils::tls::CertKey;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Largest PEM file read, in MiB; the authorities of a whole system have a quarter of one.
const MAX_FILE: u64 = 4;

/// What the connections of a pool have in common.
#[derive(Debug, Clone, Default)]
pub struct Transport {
    /// `None` = plain.
    pub tls: Option<TransportTls>,
    /// What is spoken.
    pub protocol: UpstreamProtocol,
    /// Differs whenever connections must not be shared: it covers every setting and the contents of
    /// every file. Pingora's own reuse key leaves out the authorities and all of a client certificate
    /// but its serial number.
    pub group_key: u64,
}

/// TLS towards an upstream.
#[derive(Debug, Clone)]
pub struct TransportTls {
    /// Who an endpoint must be.
    pub expected: Expected,
    /// Trusted in place of the system's authorities.
    pub ca: Option<Arc<CaType>>,
    /// Presented when the upstream asks.
    pub client: Option<Arc<CertKey>>,
    /// Verify certificate and name.
    pub verify: bool,
}

/// Whom the certificate of an endpoint must name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Expected {
    /// This name, which is also asked for (SNI).
    Name(String),
    /// This address.
    Address(IpAddr),
    /// The address it is connected to at.
    OwnAddress,
    /// Whoever it likes, without being asked: nothing is verified.
    Anybody,
}

impl TransportTls {
    /// The name that is asked for, if it is one.
    pub fn server_name(&self) -> Option<&str> {
        match &self.expected {
            Expected::Name(name) => Some(name),
            Expected::Address(_) | Expected::OwnAddress | Expected::Anybody => None,
        }
    }
}

impl Transport {
    /// Reads the files of `tls:` for these endpoints, `path` being the key path of the upstream. `None` when a
    /// problem was reported.
    pub fn compile(
        tls: Option<&UpstreamTlsConfig>,
        protocol: UpstreamProtocol,
        endpoints: &[EndpointConfig],
        source: &Source,
        path: &str,
        problems: &mut Problems,
    ) -> Option<Transport> {
        let Some(tls) = tls else { return Some(Transport::plain(protocol)) };
        let before = problems.0.len();
        let mut hasher = DefaultHasher::new();
        let expected = expected(tls, endpoints);
        (protocol, expected.as_ref().ok(), tls.verify).hash(&mut hasher);

        let mut report = |field: &str, fault: Fault| {
            let mut problem: Problem = source.problem(format!("{path}.tls.{field}"), fault.reason);
            problem.hint = fault.hint.map(str::to_owned);
            problems.push(problem);
        };
        let expected = expected.map_err(|fault| report("server_name", fault)).ok();
        let mut read = |field: &'static str, path: &PathBuf| {
            let bytes = file::read(&source.resolve(path), MAX_FILE);
            let bytes = bytes.map_err(|reason| report(field, Fault::of(reason))).ok()?;
            (field, &bytes).hash(&mut hasher);
            Some(bytes)
        };
        let ca = tls.ca.as_ref().and_then(|file| read("ca", file));
        let cert = tls.cert.as_ref().and_then(|file| read("cert", file));
        let key = tls.key.as_ref().and_then(|file| read("key", file));

        let ca = ca.and_then(|pem| authorities(&pem).map_err(|fault| report("ca", fault)).ok());
        let cert = cert.and_then(|pem| certificates(&pem).map_err(|fault| report("cert", fault)).ok());
        let key = key.and_then(|pem| private_key(&pem).map_err(|fault| report("key", fault)).ok());
        if tls.cert.is_some() != tls.key.is_some() {
            let (present, absent) = if tls.cert.is_some() { ("cert", "key") } else { ("key", "cert") };
            report(present, Fault::of(format!("`{present}` needs `{absent}` beside it")));
        }
        let client = cert
            .zip(key)
            .and_then(|(chain, key)| client_pair(chain, key).map_err(|fault| report("key", fault)).ok());
        if tls.verify && tls.ca.is_none() && !system_has_authorities() {
            report("verify", NO_AUTHORITIES);
        }
        if problems.0.len() > before {
            return None;
        }
        // 0 is the key of plain HTTP/1.
        let group_key = hasher.finish().max(1);
        let tls = Some(TransportTls { expected: expected?, ca, client, verify: tls.verify });
        Some(Transport { tls, protocol, group_key })
    }

    fn plain(protocol: UpstreamProtocol) -> Transport {
        let group_key = match protocol {
            UpstreamProtocol::Http1 => 0,
            other => {
                let mut hasher = DefaultHasher::new();
                other.hash(&mut hasher);
                hasher.finish().max(1)
            }
        };
        Transport { tls: None, protocol, group_key }
    }
}

/// What is wrong with one setting.
struct Fault {
    reason: std::borrow::Cow<'static, str>,
    hint: Option<&'static str>,
}

const NO_AUTHORITIES: Fault = Fault {
    reason: std::borrow::Cow::Borrowed("this system has no certificate authorities to verify with"),
    hint: Some("install the package ca-certificates, or name a file in `ca`"),
};

impl Fault {
    fn of(reason: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
        Fault { reason: reason.into(), hint: None }
    }

    fn hint(self, hint: &'static str) -> Fault {
        Fault { hint: Some(hint), ..self }
    }
}

/// Who the endpoints must be: whom the configuration names, else their one name, else their addresses.
fn expected(tls: &UpstreamTlsConfig, endpoints: &[EndpointConfig]) -> Result<Expected, Fault> {
    if let Some(name) = &tls.server_name {
        return named(name);
    }
    let own = |endpoint: &EndpointConfig| match &endpoint.address {
        EndpointAddress::Socket(_) => Some(Expected::OwnAddress),
        EndpointAddress::Name { host, .. } => named(host.strip_suffix('.').unwrap_or(host)).ok(),
        EndpointAddress::Unix(_) => None,
    };
    let mut owns = endpoints.iter().map(own);
    let first = owns.next().flatten();
    match first.filter(|first| owns.all(|other| other.as_ref() == Some(first))) {
        Some(Expected::OwnAddress) | None if !tls.verify => Ok(Expected::Anybody),
        Some(expected) => Ok(expected),
        None => Err(Fault::of("it is missing, and the endpoints are neither addresses nor of one name")
            .hint(
                "write the name in their certificates; without verification (`verify: false`) none is needed",
            )),
    }
}

fn named(name: &str) -> Result<Expected, Fault> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() {
        return Err(Fault::of("the server name is empty")
            .hint("leave it out to verify the endpoints' own name or addresses"));
    }
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(Expected::Address(address));
    }
    let sound = name.len() <= 253
        && name.split('.').all(|label| (1..=63).contains(&label.len()) && label.bytes().all(plain));
    if sound {
        Ok(Expected::Name(name.to_owned()))
    } else {
        Err(Fault::of("this is no host name").hint("such as app.internal"))
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<X509>, Fault> {
    match X509::stack_from_pem(pem) {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(Fault::of("the file holds no certificate").hint("it must be PEM")),
        Err(_) => Err(Fault::of("the file holds a certificate that cannot be read")),
    }
}

fn authorities(pem: &[u8]) -> Result<Arc<CaType>, Fault> {
    Ok(Arc::new(certificates(pem)?.into_boxed_slice()))
}

fn private_key(pem: &[u8]) -> Result<PKey<Private>, Fault> {
    let encrypted = memchr::memmem::find(pem, b"ENCRYPTED").is_some();
    PKey::private_key_from_pem(pem).map_err(|_| match encrypted {
        true => Fault::of("the key is encrypted with a passphrase")
            .hint("decrypt it with `openssl pkey -in OLD -out NEW` and guard it with file permissions"),
        false => Fault::of("the file holds no private key that can be read").hint("it must be PEM"),
    })
}

fn client_pair(chain: Vec<X509>, key: PKey<Private>) -> Result<Arc<CertKey>, Fault> {
    let owned = |leaf: &X509| leaf.public_key().is_ok_and(|public| public.public_eq(&key));
    match chain.first() {
        Some(leaf) if owned(leaf) => Ok(Arc::new(CertKey::new(chain, key))),
        _ => Err(Fault::of("the key does not belong to the first certificate of `cert`")),
    }
}

/// Whether there is a file or folder where the engine will look for the system's authorities.
fn system_has_authorities() -> bool {
    let places = openssl_probe::probe();
    let filled = |folder: PathBuf| std::fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some());
    places.cert_file.is_some() || places.cert_dir.is_some_and(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UpstreamProtocol::{H2c, Http1, Http2};
    use crate::upstream::fixtures::{Authority, Folder, tls};

    fn compile(folder: &Folder, tls: &UpstreamTlsConfig) -> Result<Transport, String> {
        let mut problems = Problems::default();
        let transport =
            Transport::compile(Some(tls), Http1, &[], &folder.source(), "upstreams.app", &mut problems);
        assert_eq!(transport.is_some(), problems.is_empty());
        transport.ok_or_else(|| problems.to_string())
    }

    #[test]
    fn what_is_no_host_name_is_refused_as_server_name() {
        let folder = Folder::new();
        let ca = folder.write("ca.pem", &Authority::new().cert_pem());
        for name in ["", "a b", "*.app.test", "app.test.", ".app", "app..test", "äpp.test"] {
            let error =
                compile(&folder, &UpstreamTlsConfig { ca: Some(ca.clone()), ..tls(name) }).unwrap_err();
            assert!(error.contains("upstreams.app.tls.server_name: "), "{name:?}: {error}");
        }
        assert!(compile(&folder, &UpstreamTlsConfig { ca: Some(ca), ..tls("my_app.test") }).is_ok());
    }

    #[test]
    fn without_a_server_name_endpoints_must_be_who_they_are_listed_as() {
        let folder = Folder::new();
        let ca = Some(folder.write("ca.pem", &Authority::new().cert_pem()));
        let compile = |endpoints: &[&str], verify| {
            let address = |text: &str| match text.parse() {
                Ok(socket) => EndpointAddress::Socket(socket),
                Err(_) if text.starts_with('/') => EndpointAddress::Unix(text.to_owned()),
                Err(_) => EndpointAddress::Name { host: text.to_owned(), port: 1 },
            };
            let base = EndpointConfig::at(([127, 0, 0, 1], 1).into());
            let at = |text: &&str| EndpointConfig { address: address(text), ..base.clone() };
            let endpoints: Vec<_> = endpoints.iter().map(at).collect();
            let tls = UpstreamTlsConfig { server_name: None, verify, ca: ca.clone(), ..tls("") };
            let mut problems = Problems::default();
            let source = folder.source();
            Transport::compile(Some(&tls), Http1, &endpoints, &source, "upstreams.app", &mut problems)
                .map(|transport| transport.tls.unwrap().expected)
                .ok_or_else(|| problems.to_string())
        };
        let name = || Ok(Expected::Name("app.test".to_owned()));
        assert_eq!(compile(&["10.0.0.1:1", "[::1]:2"], true), Ok(Expected::OwnAddress));
        assert_eq!(compile(&["app.test", "app.test."], true), name());
        assert_eq!(compile(&["app.test"], false), name());
        for endpoints in [&["app.test", "other.test"][..], &["app.test", "10.0.0.1:1"], &["/a"]] {
            let error = compile(endpoints, true).unwrap_err();
            assert!(error.contains("upstreams.app.tls.server_name: it is missing"), "{error}");
            assert_eq!(compile(endpoints, false), Ok(Expected::Anybody));
        }
        assert_eq!(compile(&["10.0.0.1:1"], false), Ok(Expected::Anybody));
    }

    #[test]
    fn files_that_cannot_serve_are_all_reported() {
        let folder = Folder::new();
        let config = UpstreamTlsConfig {
            ca: Some(folder.write("ca.pem", b"")),
            cert: Some("absent.pem".into()),
            key: Some(folder.write("broken.key", b"-----BEGIN PRIVATE KEY-----")),
            ..tls("app.test")
        };
        let error = compile(&folder, &config).unwrap_err();
        for part in [
            "upstreams.app.tls.ca: the file holds no certificate",
            "upstreams.app.tls.cert: cannot read",
            "upstreams.app.tls.key: the file holds no private key",
        ] {
            assert!(error.contains(part), "{part:?} not in {error}");
        }
    }

    #[test]
    fn a_client_certificate_needs_its_own_key() {
        let folder = Folder::new();
        let authority = Authority::new();
        let ca = Some(folder.write("ca.pem", &authority.cert_pem()));
        let (one, other) = (authority.issue("one.test"), authority.issue("other.test"));
        let cert = Some(folder.write("cert.pem", &one.cert_pem()));
        let key = Some(folder.write("key.pem", &other.key_pem()));
        let config = UpstreamTlsConfig { ca, ..tls("app.test") };
        let error =
            compile(&folder, &UpstreamTlsConfig { cert: cert.clone(), ..config.clone() }).unwrap_err();
        assert!(error.contains("upstreams.app.tls.cert: `cert` needs `key` beside it"), "{error}");
        let error = compile(&folder, &UpstreamTlsConfig { key: key.clone(), ..config.clone() }).unwrap_err();
        assert!(error.contains("upstreams.app.tls.key: `key` needs `cert` beside it"), "{error}");
        let both = UpstreamTlsConfig { cert, key, ..config };
        let error = compile(&folder, &both).unwrap_err();
        assert!(error.contains("upstreams.app.tls.key: the key does not belong"), "{error}");
        folder.write("key.pem", &one.key_pem());
        assert!(compile(&folder, &both).unwrap().tls.unwrap().client.is_some());
    }

    #[test]
    fn every_setting_and_every_file_sets_connections_apart() {
        let folder = Folder::new();
        let (authority, other) = (Authority::new(), Authority::new());
        let ca = Some(folder.write("ca.pem", &authority.cert_pem()));
        let base = UpstreamTlsConfig { ca, ..tls("app.test") };
        let key = |config: &UpstreamTlsConfig| compile(&folder, config).unwrap().group_key;
        let of = |tls: Option<&UpstreamTlsConfig>, protocol| {
            Transport::compile(tls, protocol, &[], &folder.source(), "", &mut Problems::default())
                .unwrap()
                .group_key
        };
        let client = authority.issue("client.test");
        let with_client = UpstreamTlsConfig {
            cert: Some(folder.write("cert.pem", &client.cert_pem())),
            key: Some(folder.write("key.pem", &client.key_pem())),
            ..base.clone()
        };
        let mut keys = vec![
            of(None, Http1),
            key(&base),
            key(&UpstreamTlsConfig { server_name: Some("other.test".to_owned()), ..base.clone() }),
            key(&UpstreamTlsConfig { server_name: Some("10.0.0.1".to_owned()), ..base.clone() }),
            key(&UpstreamTlsConfig { verify: false, ..base.clone() }),
            key(&UpstreamTlsConfig { ca: None, verify: false, ..base.clone() }),
            key(&with_client),
            of(None, H2c),
            of(Some(&base), Http2),
        ];
        assert_eq!(key(&base), keys[1], "the same settings share connections");
        folder.write("ca.pem", &other.cert_pem());
        keys.push(key(&base));
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }
}
