//! The store in real handshakes, over a socket pair.

use super::*;
use crate::config::{ClientAuthConfig, ClientAuthMode, TlsVersion};
use crate::tls::fixtures::{Authority, DAY, Folder, NOW, ec_key, rsa_key, strict};
use crate::tls::names::CoveredNames;
use boring::pkey::Id;
use boring::ssl::{SslContextBuilder, SslMethod, SslSession, SslSessionCacheMode, SslVersion};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

/// Compiles a store of one certificate per list of names; the last one marked is the default.
fn compile(names: &[&[&str]], marked: Option<usize>, tls: &TlsConfig) -> Result<CertificateStore, String> {
    compile_with(names, marked, tls, &TicketKeys::generate().unwrap())
}

fn compile_with(
    names: &[&[&str]],
    marked: Option<usize>,
    tls: &TlsConfig,
    tickets: &TicketKeys,
) -> Result<CertificateStore, String> {
    let folder = Folder::new();
    let root = Authority::root("root");
    let mut configs: Vec<CertificateConfig> = Vec::new();
    for names in names {
        configs.push(folder.add(&root.issue(names, &ec_key(), NOW - DAY, NOW + DAY)));
    }
    if let Some(marked) = marked {
        configs[marked].default = true;
    }
    let mut problems = Problems::default();
    CertificateStore::compile_by(&configs, tls, &folder.source(), tickets, &strict(), &mut problems)
        .ok_or_else(|| problems.to_string())
}

/// A client with a session cache of one.
struct Client {
    context: SslContext,
    session: Arc<Mutex<Option<SslSession>>>,
}

struct Outcome {
    covered: CoveredNames,
    alpn: Option<Vec<u8>>,
    version: Option<SslVersion>,
    suite: &'static str,
    key: Id,
    resumed: bool,
}

impl Client {
    fn new(tune: impl FnOnce(&mut SslContextBuilder)) -> Client {
        let mut context = SslContext::builder(SslMethod::tls()).unwrap();
        let session = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&session);
        context.set_session_cache_mode(SslSessionCacheMode::CLIENT);
        context.set_new_session_callback(move |_, session| *kept.lock().unwrap() = Some(session));
        tune(&mut context);
        Client { context: context.build(), session }
    }

    fn connect(&self, store: &CertificateStore, sni: Option<&str>, http2: bool) -> Result<Outcome, String> {
        let (near, far) = UnixStream::pair().unwrap();
        let accepting = store.session(http2).unwrap();
        let server = std::thread::spawn(move || {
            // One byte, so that the client reads past the tickets.
            if let Ok(mut stream) = accepting.accept(far) {
                stream.write_all(b"x").unwrap();
            }
        });
        let mut ssl = Ssl::new(&self.context).unwrap();
        if let Some(sni) = sni {
            ssl.set_hostname(sni).unwrap();
        }
        if let Some(session) = self.session.lock().unwrap().as_ref() {
            // SAFETY: the session came from this very context.
            unsafe { ssl.set_session(session).unwrap() };
        }
        let outcome = ssl.connect(near).map_err(|error| error.to_string()).and_then(|mut stream| {
            // A client without the certificate that is asked for learns of it here.
            stream.read_exact(&mut [0]).map_err(|error| error.to_string())?;
            Ok(Outcome {
                covered: CoveredNames::of(&stream.ssl().peer_certificate().unwrap()),
                alpn: stream.ssl().selected_alpn_protocol().map(<[u8]>::to_vec),
                version: stream.ssl().version2(),
                suite: stream.ssl().current_cipher().unwrap().name(),
                key: stream.ssl().peer_certificate().unwrap().public_key().unwrap().id(),
                resumed: stream.ssl().session_reused(),
            })
        });
        server.join().unwrap();
        outcome
    }
}

fn presented(store: &CertificateStore, sni: Option<&str>) -> String {
    Client::new(|_| {}).connect(store, sni, true).unwrap().covered.dns.remove(0)
}

#[test]
fn the_server_name_chooses_the_certificate() {
    let names: [&[&str]; 3] = [&["first.test"], &["*.app.test"], &["www.app.test", "app.test"]];
    let store = compile(&names, Some(1), &TlsConfig::default()).unwrap();
    for (sni, expected) in [
        (Some("first.test"), "first.test"),
        (Some("FIRST.test"), "first.test"),
        (Some("api.app.test"), "*.app.test"),
        (Some("www.app.test"), "www.app.test"),
        (Some("app.test"), "www.app.test"),
        (Some("a.b.app.test"), "*.app.test"),
        (Some("unknown.test"), "*.app.test"),
        (None, "*.app.test"),
    ] {
        assert_eq!(presented(&store, sni), expected, "{sni:?}");
    }
    assert_eq!(store.certificates().iter().map(|c| c.default).collect::<Vec<_>>(), [false, true, false]);
    let store = compile(&names, None, &TlsConfig::default()).unwrap();
    assert_eq!(presented(&store, None), "first.test", "the first one is the default unless one is marked");
}

#[test]
fn unknown_names_are_refused_when_asked_for() {
    let tls = TlsConfig { unknown_names: UnknownNames::Refuse, ..TlsConfig::default() };
    let store = compile(&[&["app.test"], &["*.wild.test"]], None, &tls).unwrap();
    for sni in ["unknown.test", "a.b.wild.test", "wild.test"] {
        let error = Client::new(|_| {}).connect(&store, Some(sni), true).err().unwrap();
        assert!(error.contains("UNRECOGNIZED_NAME"), "{error}");
    }
    assert_eq!(presented(&store, Some("a.wild.test")), "*.wild.test");
    assert_eq!(presented(&store, Some("app.test")), "app.test");
    assert_eq!(presented(&store, None), "app.test");
    assert_eq!(presented(&store, Some("127.0.0.1")), "app.test");
}

#[test]
fn alpn_follows_our_preference_and_the_listener() {
    let store = compile(&[&["app.test"], &["other.test"]], None, &TlsConfig::default()).unwrap();
    let agreed = |offered: &'static [u8], sni, http2| {
        let client = Client::new(|context| context.set_alpn_protos(offered).unwrap());
        client.connect(&store, Some(sni), http2).map(|outcome| outcome.alpn.unwrap_or_default())
    };
    for sni in ["app.test", "other.test"] {
        assert_eq!(agreed(b"\x08http/1.1\x02h2", sni, true).unwrap(), b"h2");
        assert_eq!(agreed(b"\x02h2\x08http/1.1", sni, false).unwrap(), b"http/1.1");
        assert_eq!(agreed(b"\x08http/1.1", sni, true).unwrap(), b"http/1.1");
        assert_eq!(agreed(b"\x03foo\x08http/1.1", sni, true).unwrap(), b"http/1.1");
        assert!(agreed(b"\x03foo", sni, true).unwrap_err().contains("NO_APPLICATION_PROTOCOL"));
        assert!(agreed(b"\x02h2", sni, false).unwrap_err().contains("NO_APPLICATION_PROTOCOL"));
    }
    assert_eq!(Client::new(|_| {}).connect(&store, None, true).unwrap().alpn, None);
}

#[test]
fn sessions_resume_across_reloads_names_and_listeners_but_not_across_processes() {
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let tickets = TicketKeys::generate().unwrap();
        let names: [&[&str]; 2] = [&["app.test"], &["other.test"]];
        let before = compile_with(&names, None, &TlsConfig::default(), &tickets).unwrap();
        let after = compile_with(&names, None, &TlsConfig::default(), &tickets).unwrap();
        let client = Client::new(|context| context.set_max_proto_version(Some(version)).unwrap());
        for sni in ["app.test", "other.test"] {
            *client.session.lock().unwrap() = None;
            let resumed = |store, http2| client.connect(store, Some(sni), http2).unwrap().resumed;
            assert!(!resumed(&before, true), "{version:?} {sni}: first");
            assert!(resumed(&before, true), "{version:?} {sni}: same store");
            assert!(resumed(&after, true), "{version:?} {sni}: after a reload");
            assert!(resumed(&after, false), "{version:?} {sni}: other listener");
            tickets.rotate().unwrap();
            assert!(resumed(&after, true), "{version:?} {sni}: previous key");
            tickets.rotate().unwrap();
            assert!(resumed(&before, true), "{version:?} {sni}: the ticket was renewed");
            tickets.rotate().unwrap();
            tickets.rotate().unwrap();
            assert!(!resumed(&after, true), "{version:?} {sni}: key forgotten");
            let elsewhere = compile(&names, None, &TlsConfig::default()).unwrap();
            assert!(!resumed(&elsewhere, true), "{version:?} {sni}: another process");
        }
    }
}

#[test]
fn min_version_refuses_older_clients() {
    let old = Client::new(|context| context.set_max_proto_version(Some(SslVersion::TLS1_2)).unwrap());
    let ancient = Client::new(|context| {
        context.set_min_proto_version(Some(SslVersion::TLS1)).unwrap();
        context.set_max_proto_version(Some(SslVersion::TLS1_1)).unwrap();
    });
    let store = compile(&[&["app.test"]], None, &TlsConfig::default()).unwrap();
    assert_eq!(old.connect(&store, None, true).unwrap().version, Some(SslVersion::TLS1_2));
    assert!(ancient.connect(&store, None, true).err().unwrap().contains("VERSION"));
    let tls = TlsConfig { min_version: TlsVersion::V1_3, ..TlsConfig::default() };
    let store = compile(&[&["app.test"], &["other.test"]], None, &tls).unwrap();
    for sni in [None, Some("other.test")] {
        assert!(old.connect(&store, sni, true).err().unwrap().contains("VERSION"));
    }
    let version = Client::new(|_| {}).connect(&store, Some("other.test"), true).unwrap().version;
    assert_eq!(version, Some(SslVersion::TLS1_3));
}

#[test]
fn the_cheaper_suite_wins_over_the_clients_order() {
    let store = compile(&[&["app.test"], &["other.test"]], None, &TlsConfig::default()).unwrap();
    for sni in [None, Some("other.test")] {
        let tls12 = Client::new(|context| {
            context.set_max_proto_version(Some(SslVersion::TLS1_2)).unwrap();
            context.set_cipher_list("ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-ECDSA-AES128-GCM-SHA256").unwrap();
        });
        let suite = tls12.connect(&store, sni, true).unwrap().suite;
        assert_eq!(suite, "ECDHE-ECDSA-AES128-GCM-SHA256");
        let cbc = Client::new(|context| {
            context.set_max_proto_version(Some(SslVersion::TLS1_2)).unwrap();
            context.set_cipher_list("ECDHE-ECDSA-AES128-SHA").unwrap();
        });
        assert!(cbc.connect(&store, sni, true).is_err(), "no CBC suites");
        let tls13 = Client::new(|context| {
            let wanted = [0x1302, 0x1303, 0x1301];
            // SAFETY: the context is valid and the suites are copied.
            unsafe {
                boring_sys::SSL_CTX_set1_tls13_ciphers(
                    context.as_ptr(),
                    wanted.as_ptr(),
                    std::ptr::null(),
                    wanted.len(),
                );
            }
        });
        // SAFETY: reads CPU features.
        if unsafe { boring_sys::EVP_has_aes_hardware() } == 1 {
            assert_eq!(tls13.connect(&store, sni, true).unwrap().suite, "TLS_AES_128_GCM_SHA256");
        }
    }
}

#[test]
fn a_hello_retry_keeps_the_chosen_certificate() {
    let store = compile(&[&["app.test"], &["other.test"]], None, &TlsConfig::default()).unwrap();
    let client = Client::new(|context| context.set_curves_list("P-521:P-384").unwrap());
    let outcome = client.connect(&store, Some("other.test"), true).unwrap();
    assert_eq!(outcome.covered.dns, ["other.test"]);
}

#[test]
fn overlapping_names_and_two_defaults_are_refused_together() {
    let names: [&[&str]; 3] = [&["a.test", "b.test"], &["c.test"], &["B.test", "*.c.test", "a.test"]];
    let folder = Folder::new();
    let root = Authority::root("root");
    let mut configs: Vec<_> =
        names.iter().map(|names| folder.add(&root.issue(names, &ec_key(), NOW - DAY, NOW + DAY))).collect();
    configs[0].default = true;
    configs[2].default = true;
    configs.push(folder.add(&root.issue(&[], &ec_key(), NOW - DAY, NOW + DAY)));
    let mut problems = Problems::default();
    let (tls, tickets) = (TlsConfig::default(), TicketKeys::generate().unwrap());
    let store =
        CertificateStore::compile_by(&configs, &tls, &folder.source(), &tickets, &strict(), &mut problems);
    assert!(store.is_none());
    let text = problems.to_string();
    for part in [
        "certificates[3].cert: the certificate covers no name",
        "certificates[2].default: certificates[0] is the default already",
        "certificates[2].cert: b.test and 1 more is covered by certificates[0] too",
    ] {
        assert!(text.contains(part), "{part:?} not in {text}");
    }
    assert_eq!(problems.0.len(), 3, "{text}");
}

/// What `change` makes of one certificate for each list of names; `true` = with an RSA key.
fn compile_entries(
    leaves: &[(&[&str], bool)],
    change: impl FnOnce(&Folder, &mut Vec<CertificateConfig>),
) -> Result<CertificateStore, String> {
    let folder = Folder::new();
    let root = Authority::root("root");
    let entry = |(names, rsa): &(&[&str], bool)| {
        let key = if *rsa { rsa_key(2048) } else { ec_key() };
        folder.add(&root.issue(names, &key, NOW - DAY, NOW + DAY))
    };
    let mut configs: Vec<_> = leaves.iter().map(entry).collect();
    change(&folder, &mut configs);
    let (tls, tickets, mut problems) =
        (TlsConfig::default(), TicketKeys::generate().unwrap(), Problems::default());
    CertificateStore::compile_by(&configs, &tls, &folder.source(), &tickets, &strict(), &mut problems)
        .ok_or_else(|| problems.to_string())
}

#[test]
fn each_client_gets_the_kind_of_key_it_can_verify() {
    let both: &[&str] = &["app.test", "both.test"];
    for leaves in [
        [(both, true), (both, false), (&["rsa.test"], true)],
        [(both, false), (both, true), (&["rsa.test"], true)],
    ] {
        let store = compile_entries(&leaves, |_, _| {}).unwrap();
        for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
            let kind = |algorithms: Option<&str>, sni: Option<&str>| {
                let client = Client::new(|context| {
                    context.set_min_proto_version(Some(version)).unwrap();
                    context.set_max_proto_version(Some(version)).unwrap();
                    algorithms.into_iter().for_each(|list| context.set_sigalgs_list(list).unwrap());
                });
                client.connect(&store, sni, true).map(|outcome| outcome.key)
            };
            for sni in [Some("app.test"), Some("both.test"), Some("unknown.test"), None] {
                assert_eq!(kind(None, sni), Ok(Id::EC), "{sni:?}");
                assert_eq!(kind(Some("rsa_pss_rsae_sha256:rsa_pkcs1_sha256"), sni), Ok(Id::RSA), "{sni:?}");
                assert_eq!(kind(Some("ecdsa_secp256r1_sha256"), sni), Ok(Id::EC), "{sni:?}");
            }
            assert_eq!(kind(None, Some("rsa.test")), Ok(Id::RSA));
        }
        assert_eq!(store.certificates().len(), 3);
    }
}

#[test]
fn names_in_common_are_served_by_both_and_others_by_their_own() {
    let leaves: [(&[&str], bool); 2] = [(&["a.test", "b.test"], false), (&["b.test", "c.test"], true)];
    let store = compile_entries(&leaves, |_, _| {}).unwrap();
    let kind = |sni, algorithms: &str| {
        let client = Client::new(|context| context.set_sigalgs_list(algorithms).unwrap());
        client.connect(&store, Some(sni), true).map(|outcome| outcome.key).ok()
    };
    let (rsa, ec) = ("rsa_pss_rsae_sha256", "ecdsa_secp256r1_sha256");
    assert_eq!((kind("a.test", ec), kind("a.test", rsa)), (Some(Id::EC), None));
    assert_eq!((kind("b.test", ec), kind("b.test", rsa)), (Some(Id::EC), Some(Id::RSA)));
    assert_eq!((kind("c.test", ec), kind("c.test", rsa)), (None, Some(Id::RSA)));
}

#[test]
fn one_certificate_serves_some_of_its_names_under_a_policy_of_their_own() {
    let names: &[&str] = &["app.test", "*.app.test"];
    let store = compile_entries(&[(names, false)], |folder, configs| {
        let ca = folder.write("ca.pem", &Authority::root("clients").cert_pem());
        let client_auth = Some(ClientAuthConfig { ca, mode: ClientAuthMode::Require });
        let names = Some(vec!["Admin.app.test".to_owned(), "app.test".to_owned()]);
        configs.push(CertificateConfig { names, client_auth, ..configs[0].clone() });
    })
    .unwrap();
    let open = |sni| Client::new(|_| {}).connect(&store, Some(sni), true).is_ok();
    assert!(open("other.app.test") && open("unknown.test"));
    assert!(!open("admin.app.test") && !open("app.test"), "nobody without a certificate");
    assert_eq!(store.certificates()[0].names, ["*.app.test"]);
    assert_eq!(store.certificates()[1].names, ["admin.app.test", "app.test"]);
    assert_eq!(store.certificates()[1].name, "admin.app.test");
}

#[test]
fn names_that_cannot_be_served_and_owners_that_disagree_are_refused() {
    let names: &[&str] = &["app.test", "*.app.test"];
    let error = compile_entries(&[(names, false)], |_, configs| {
        let given = ["a.app.test", "a.b.app.test", "other.test", "A.app.test", "*", "*.app.test"];
        configs[0].names = Some(given.map(str::to_owned).to_vec());
        configs.push(CertificateConfig { names: Some(Vec::new()), ..configs[0].clone() });
    })
    .unwrap_err();
    for part in [
        "certificates[0].names[1]: the certificate does not cover a.b.app.test",
        "certificates[0].names[2]: the certificate does not cover other.test",
        "certificates[0].names[3]: a.app.test is in the list already",
        "certificates[0].names[4]: * is no name",
        "certificates[1].names: the list is empty",
    ] {
        assert!(error.contains(part), "{part:?} not in {error}");
    }
    let both: [(&[&str], bool); 2] = [(names, false), (names, true)];
    let strict = |configs: &mut Vec<CertificateConfig>| configs[1].min_version = Some(TlsVersion::V1_3);
    let error = compile_entries(&both, |_, configs| strict(configs)).unwrap_err();
    assert!(error.contains("certificates[1].cert: app.test and 1 more is covered"), "{error}");
    let twice = |configs: &mut Vec<CertificateConfig>| configs.push(configs[1].clone());
    let error = compile_entries(&both, |_, configs| twice(configs)).unwrap_err();
    assert!(
        error.contains("certificates[2].cert: app.test and 1 more is covered by certificates[1]"),
        "{error}"
    );
}

#[test]
fn without_certificates_a_self_signed_one_is_presented() {
    let mut problems = Problems::default();
    let (tls, tickets) = (TlsConfig::default(), TicketKeys::generate().unwrap());
    let store =
        CertificateStore::compile(&[], &tls, &Source::default(), &tickets, None, &mut problems).unwrap();
    assert!(store.is_self_signed());
    assert_eq!(presented(&store, None), "localhost");
    assert_eq!(store.certificates()[0].key_type, "ECDSA P-256");
    assert!(store.certificates()[0].default);
}

#[test]
fn operators_see_names_dates_and_fingerprint() {
    let store = compile(&[&["app.test", "*.app.test", "10.0.0.1"]], None, &TlsConfig::default()).unwrap();
    let info = &store.certificates()[0];
    assert_eq!((info.name.as_str(), info.issuer.as_str()), ("app.test", "CN=root"));
    assert_eq!(info.names, ["app.test", "*.app.test", "10.0.0.1"]);
    assert_eq!((info.not_before, info.not_after), (NOW - DAY, NOW + DAY));
    assert_eq!(info.fingerprint_sha256.len(), 64);
}

#[test]
fn a_thousand_certificates_compile() {
    let names: Vec<String> = (0..1_000).map(|number| format!("host{number}.test")).collect();
    let names: Vec<[&str; 1]> = names.iter().map(|name| [name.as_str()]).collect();
    let names: Vec<&[&str]> = names.iter().map(|names| &names[..]).collect();
    let store = compile(&names, None, &TlsConfig::default()).unwrap();
    assert_eq!(presented(&store, Some("host999.test")), "host999.test");
}
