//! Are these files a certificate chain and its key, fit to be presented?
//!
//! Reads and judges one entry of `certificates:`; everything wrong with it is reported at once, so that
//! a bad pair is refused before anything serves it. Which names the certificate covers, and whether
//! another one covers them too, is [`super::store`]'s business.

use super::certificate::{fingerprint, key_type, subject, validity};
use super::grace::Grace;
use crate::config::{CertificateConfig, Problems, Source, file};
use boring::pkey::{HasPublic, Id, PKey, PKeyRef, Private};
use boring::x509::X509;
use chrono::DateTime;
use std::path::Path;

/// Largest PEM file read, in MiB; a chain of a few certificates has about ten thousand.
const MAX_FILE: u64 = 1;

/// Smallest RSA modulus accepted, in bits (CA/Browser Forum baseline requirements 6.1.5).
const MIN_RSA_BITS: u32 = 2048;

/// A certificate chain, leaf first, and the leaf's private key.
#[derive(Clone)]
pub struct KeyPair {
    /// Never empty when it comes from [`load`].
    pub chain: Vec<X509>,
    /// Belongs to the first of `chain`.
    pub key: PKey<Private>,
}

/// What is wrong with one of the two files.
struct Fault {
    /// `cert` or `key`.
    field: &'static str,
    reason: String,
    hint: Option<&'static str>,
}

type Checked<T> = Result<T, Fault>;

/// Reads the files of one entry, `path` being its key path (`certificates[0]`); by `grace` it may be out of
/// its time. `None` when a problem was reported.
pub fn load(
    config: &CertificateConfig,
    source: &Source,
    path: &str,
    grace: &Grace,
    problems: &mut Problems,
) -> Option<KeyPair> {
    let mut faults = Vec::new();
    let mut note = |fault: Fault| faults.push(fault);
    let chain = read_chain(&source.resolve(&config.cert)).map_err(&mut note).ok();
    let key = read_key(&source.resolve(&config.key)).map_err(&mut note).ok();
    if let Some(chain) = &chain {
        check_validity(chain, grace).unwrap_or_else(&mut note);
        match key.as_ref().map(|key| check_match(chain, key)) {
            Some(Err(fault)) => note(fault),
            _ => check_order(chain).unwrap_or_else(&mut note),
        }
    }
    if let Some(key) = &key {
        check_strength(key).unwrap_or_else(&mut note);
    }
    let sound = faults.is_empty();
    for Fault { field, reason, hint } in faults {
        let mut problem = source.problem(format!("{path}.{field}"), reason);
        problem.hint = hint.map(str::to_owned);
        problems.push(problem);
    }
    chain.zip(key).filter(|_| sound).map(|(chain, key)| KeyPair { chain, key })
}

fn read_chain(file: &Path) -> Checked<Vec<X509>> {
    let fault = |reason: String, hint| Fault { field: "cert", reason, hint };
    let pem = read(file).map_err(|reason| fault(reason, None))?;
    let shown = file.display();
    let labels = labels(&pem);
    if labels.is_empty() {
        return Err(fault(format!("{shown} is not PEM"), not_pem_hint(&pem)));
    }
    if !labels.iter().any(|label| label.ends_with(b"CERTIFICATE")) {
        let hint = labels
            .iter()
            .any(|label| label.ends_with(b"PRIVATE KEY"))
            .then_some("it holds a private key: `cert` and `key` look swapped");
        return Err(fault(format!("{shown} holds no certificate"), hint));
    }
    match X509::stack_from_pem(&pem) {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(fault(format!("{shown} holds no certificate"), None)),
        Err(_) => Err(fault(
            format!("{shown} holds a certificate that cannot be read"),
            Some("a block may be cut short or changed; copy the file anew"),
        )),
    }
}

fn read_key(file: &Path) -> Checked<PKey<Private>> {
    let fault = |reason: String, hint| Fault { field: "key", reason, hint };
    let pem = read(file).map_err(|reason| fault(reason, None))?;
    let shown = file.display();
    let labels = labels(&pem);
    if labels.is_empty() {
        return Err(fault(format!("{shown} is not PEM"), not_pem_hint(&pem)));
    }
    let Some(label) = labels.iter().find(|label| label.ends_with(b"PRIVATE KEY")) else {
        let hint = labels
            .iter()
            .any(|label| label.ends_with(b"CERTIFICATE"))
            .then_some("it holds a certificate: `cert` and `key` look swapped");
        return Err(fault(format!("{shown} holds no private key"), hint));
    };
    if label.starts_with(b"ENCRYPTED") || memchr::memmem::find(&pem, b"Proc-Type: 4,ENCRYPTED").is_some() {
        return Err(fault(
            format!("{shown} is encrypted with a passphrase"),
            Some("decrypt it with `openssl pkey -in OLD -out NEW` and guard it with file permissions"),
        ));
    }
    let hint = label
        .starts_with(b"OPENSSH")
        .then_some("it is in OpenSSH's own format; convert it with `ssh-keygen -p -m PEM -f KEY`");
    PKey::private_key_from_pem(&pem).map_err(|error| {
        let reason = error.errors().last().and_then(|error| error.reason()).unwrap_or("damaged").to_owned();
        fault(format!("{shown} holds a private key that cannot be read: {reason}"), hint)
    })
}

/// The leaf must be valid now, unless it is let off. Issuers are left alone: a chain may carry one that has
/// expired for the sake of old clients.
fn check_validity(chain: &[X509], grace: &Grace) -> Checked<()> {
    let fault = |reason, hint| Err(Fault { field: "cert", reason, hint });
    let Some(leaf) = chain.first() else { return Ok(()) };
    let now = grace.now;
    match validity(leaf) {
        Some(_) if grace.certificate(&fingerprint(leaf)) => Ok(()),
        None => fault("the certificate's dates cannot be read".to_owned(), None),
        Some((not_before, not_after)) if not_after <= now => fault(
            format!("the certificate expired on {} (valid from {})", date(not_after), date(not_before)),
            Some("renew it"),
        ),
        Some((not_before, not_after)) if now < not_before => fault(
            format!("the certificate is not valid before {} (until {})", date(not_before), date(not_after)),
            Some("check this machine's clock"),
        ),
        Some(_) => Ok(()),
    }
}

fn check_match(chain: &[X509], key: &PKeyRef<Private>) -> Checked<()> {
    let owned = |certificate: &X509| certificate.public_key().is_ok_and(|public| public.public_eq(key));
    match chain.iter().position(owned) {
        Some(0) => Ok(()),
        Some(place) => Err(Fault {
            field: "cert",
            reason: format!("the key belongs to certificate {} of the file, not to the first", place + 1),
            hint: Some("put the leaf first, then the issuer of each certificate"),
        }),
        None => Err(Fault {
            field: "key",
            reason: "the key does not belong to the certificate".to_owned(),
            hint: Some("both come from one request; after a renewal, replace both files"),
        }),
    }
}

/// Each certificate must have been issued by the next (RFC 8446 section 4.4.2 lets clients be lenient;
/// not all are).
fn check_order(chain: &[X509]) -> Checked<()> {
    for (place, pair) in chain.windows(2).enumerate() {
        let [certificate, issuer] = pair else { continue };
        let signed = issuer.public_key().and_then(|key| certificate.verify(&key));
        if issuer.issued(certificate).is_err() || matches!(signed, Ok(false)) {
            return Err(Fault {
                field: "cert",
                reason: format!(
                    "certificate {} of the file ({}) did not issue certificate {} ({})",
                    place + 2,
                    subject(issuer),
                    place + 1,
                    subject(certificate)
                ),
                hint: Some("put the leaf first, then the issuer of each certificate"),
            });
        }
    }
    Ok(())
}

fn check_strength<T: HasPublic>(key: &PKeyRef<T>) -> Checked<()> {
    let fault = |reason, hint| Err(Fault { field: "key", reason, hint: Some(hint) });
    match (key.id(), key.bits()) {
        (Id::RSA, bits) if bits < MIN_RSA_BITS => fault(
            format!("an RSA key of {bits} bits is too weak"),
            "use at least 2048 bits, or ECDSA P-256, which is also cheaper",
        ),
        (Id::RSA | Id::ED25519, _) | (Id::EC, 256 | 384 | 521) => Ok(()),
        _ => fault(format!("keys of {} are not supported", key_type(key)), "use ECDSA P-256 or RSA"),
    }
}

/// Reads a regular file of bounded size; the error is a reason.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, String> {
    file::read(file, MAX_FILE)
}

/// The labels of the PEM blocks of a text (RFC 7468 section 3).
fn labels(pem: &[u8]) -> Vec<&[u8]> {
    pem.split(|byte| *byte == b'\n')
        .filter_map(|line| line.trim_ascii().strip_prefix(b"-----BEGIN ")?.strip_suffix(b"-----"))
        .collect()
}

fn not_pem_hint(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [] => Some("the file is empty"),
        [0x30, length, ..] if *length >= 0x80 => {
            Some("it looks like DER or PKCS#12; convert it to PEM with `openssl`")
        }
        _ => None,
    }
}

/// A date for people.
pub(super) fn date(seconds: i64) -> String {
    match DateTime::from_timestamp(seconds, 0) {
        Some(time) => time.format("%Y-%m-%d %H:%M UTC").to_string(),
        None => "an impossible date".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::fixtures::{Authority, DAY, Folder, NOW, ec_key, rsa_key, strict};

    /// Loads `cert.pem` and `key.pem` with the given contents; gives `path: reason (hint)` of each problem.
    fn problems(cert: &[u8], key: &[u8]) -> Vec<String> {
        let folder = Folder::new();
        let config = folder.pair("cert.pem", cert, "key.pem", key);
        let mut problems = Problems::default();
        let loaded = load(&config, &folder.source(), "certificates[0]", &strict(), &mut problems);
        assert_eq!(loaded.is_some(), problems.is_empty());
        let text =
            |p: crate::config::Problem| format!("{}: {} ({})", p.path, p.reason, p.hint.unwrap_or_default());
        problems.0.into_iter().map(text).collect()
    }

    fn assert_one(found: &[String], path: &str, part: &str) {
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(path) && found[0].contains(part), "{part:?} not in {found:?}");
    }

    #[test]
    fn a_chain_and_its_key_are_taken() {
        let root = Authority::root("root");
        let middle = root.subordinate("middle");
        let leaf = middle.issue(&["app.test"], &ec_key(), NOW - DAY, NOW + DAY);
        let chain = [leaf.cert_pem(), middle.cert_pem(), root.cert_pem()].concat();
        assert_eq!(problems(&chain, &leaf.key_pem()), [""; 0]);
        let both = [chain, leaf.key_pem()].concat();
        assert_eq!(problems(&both, &both), [""; 0], "one file may hold both");
    }

    #[test]
    fn a_chain_in_the_wrong_order_is_refused() {
        let root = Authority::root("root");
        let middle = root.subordinate("middle");
        let leaf = middle.issue(&["app.test"], &ec_key(), NOW - DAY, NOW + DAY);
        let found = problems(&[middle.cert_pem(), leaf.cert_pem()].concat(), &leaf.key_pem());
        assert_one(&found, "certificates[0].cert", "the key belongs to certificate 2 of the file");
        let found =
            problems(&[leaf.cert_pem(), root.cert_pem(), middle.cert_pem()].concat(), &leaf.key_pem());
        assert_one(&found, "certificates[0].cert", "certificate 2 of the file (CN=root) did not issue");
        let impostor = Authority::root("root").subordinate("middle");
        let found = problems(&[leaf.cert_pem(), impostor.cert_pem()].concat(), &leaf.key_pem());
        assert_one(&found, "certificates[0].cert", "did not issue certificate 1");
    }

    #[test]
    fn dates_outside_now_are_refused_with_the_dates() {
        let root = Authority::root("root");
        let old = root.issue(&["app.test"], &ec_key(), NOW - 9 * DAY, NOW - DAY);
        let found = problems(&old.cert_pem(), &old.key_pem());
        assert_one(&found, "certificates[0].cert", "expired on 2027-01-14 08:00 UTC");
        let early = root.issue(&["app.test"], &ec_key(), NOW + DAY, NOW + 9 * DAY);
        let found = problems(&early.cert_pem(), &early.key_pem());
        assert_one(&found, "certificates[0].cert", "not valid before 2027-01-16 08:00 UTC");
    }

    #[test]
    fn a_foreign_key_is_refused() {
        let root = Authority::root("root");
        let leaf = root.issue(&["app.test"], &ec_key(), NOW - DAY, NOW + DAY);
        for key in [ec_key(), rsa_key(2048)] {
            let found = problems(&leaf.cert_pem(), &key.private_key_to_pem_pkcs8().unwrap());
            assert_one(&found, "certificates[0].key", "does not belong to the certificate");
        }
    }

    #[test]
    fn weak_and_unknown_keys_are_refused() {
        let root = Authority::root("root");
        let weak = root.issue(&["app.test"], &rsa_key(1024), NOW - DAY, NOW + DAY);
        assert_one(
            &problems(&weak.cert_pem(), &weak.key_pem()),
            "certificates[0].key",
            "1024 bits is too weak",
        );
        let strong = root.issue(&["app.test"], &rsa_key(2048), NOW - DAY, NOW + DAY);
        assert_eq!(problems(&strong.cert_pem(), &strong.key_pem()), [""; 0]);
        let group = boring::ec::EcGroup::from_curve_name(boring::nid::Nid::SECP224R1).unwrap();
        let short = PKey::from_ec_key(boring::ec::EcKey::generate(&group).unwrap()).unwrap();
        let short = root.issue(&["app.test"], &short, NOW - DAY, NOW + DAY);
        assert_one(&problems(&short.cert_pem(), &short.key_pem()), "certificates[0].key", "not supported");
    }

    #[test]
    fn swapped_files_are_noticed() {
        let leaf = Authority::root("root").issue(&["app.test"], &ec_key(), NOW - DAY, NOW + DAY);
        let found = problems(&leaf.key_pem(), &leaf.cert_pem());
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|problem| problem.contains("look swapped")), "{found:?}");
    }

    #[test]
    fn encrypted_keys_are_refused_with_the_way_out() {
        let leaf = Authority::root("root").issue(&["app.test"], &ec_key(), NOW - DAY, NOW + DAY);
        let cipher = boring::symm::Cipher::aes_256_cbc();
        let modern = leaf.key.private_key_to_pem_pkcs8_passphrase(cipher, b"secret").unwrap();
        let legacy = b"-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n\
                       AAAA\n-----END EC PRIVATE KEY-----\n";
        for key in [&modern[..], &legacy[..]] {
            assert_one(&problems(&leaf.cert_pem(), key), "certificates[0].key", "openssl pkey");
        }
    }

    #[test]
    fn what_is_no_pem_is_refused() {
        let leaf = Authority::root("root").issue(&["app.test"], &ec_key(), NOW - DAY, NOW + DAY);
        let cases: [(&[u8], &str); 5] = [
            (b"", "the file is empty"),
            (b"hello\n", "is not PEM"),
            (&leaf.certificate.to_der().unwrap(), "looks like DER"),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be read"),
            (&leaf.cert_pem()[..200], "cannot be read"),
        ];
        for (cert, part) in cases {
            assert_one(&problems(cert, &leaf.key_pem()), "certificates[0].cert", part);
        }
        let broken = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert_one(&problems(&leaf.cert_pem(), broken), "certificates[0].key", "cannot be read");
        let ssh = b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n";
        assert_one(&problems(&leaf.cert_pem(), ssh), "certificates[0].key", "ssh-keygen");
    }

    #[test]
    fn missing_files_folders_and_huge_files_are_all_reported() {
        let folder = Folder::new();
        let config =
            CertificateConfig { cert: "absent.pem".into(), key: ".".into(), ..CertificateConfig::default() };
        let mut problems = Problems::default();
        assert!(load(&config, &folder.source(), "certificates[3]", &strict(), &mut problems).is_none());
        let text = problems.to_string();
        assert!(
            text.contains("certificates[3].cert: cannot read") && text.contains("No such file"),
            "{text}"
        );
        assert!(
            text.contains("certificates[3].key: cannot read") && text.contains("it is a directory"),
            "{text}"
        );

        let config = folder.pair("huge.pem", &vec![b'a'; 2 << 20], "key.pem", b"");
        let mut problems = Problems::default();
        assert!(load(&config, &folder.source(), "certificates[0]", &strict(), &mut problems).is_none());
        assert!(problems.to_string().contains("larger than 1 MiB"));
    }
}
