//! Which certificate does a gateway present that was given none? One made in memory.
//!
//! It lets the quickstart answer over HTTPS; no client trusts it. It is made once and kept for the
//! process, so that a reload does not change it. Warning about it is the caller's business.

use super::pem::KeyPair;
use boring::asn1::{Asn1Integer, Asn1Time};
use boring::bn::{BigNum, MsbOption};
use boring::ec::{EcGroup, EcKey};
use boring::error::ErrorStack;
use boring::hash::MessageDigest;
use boring::nid::Nid;
use boring::pkey::PKey;
use boring::x509::extension::{BasicConstraints, ExtendedKeyUsage, KeyUsage, SubjectAlternativeName};
use boring::x509::{X509, X509NameBuilder};
use parking_lot::Mutex;

const VALID_DAYS: u32 = 90;
const DAY: i64 = 86_400;

/// The certificate made last and when it was made, seconds since 1970.
static MADE: Mutex<Option<(i64, KeyPair)>> = Mutex::new(None);

/// The process's self-signed certificate: made at the first call, made anew once half its life is over.
pub fn current(now: i64) -> Result<KeyPair, ErrorStack> {
    let mut made = MADE.lock();
    if let Some((at, pair)) = made.as_ref()
        && now < at + i64::from(VALID_DAYS / 2) * DAY
    {
        return Ok(pair.clone());
    }
    let pair = generate(now, host_name().as_deref())?;
    *made = Some((now, pair.clone()));
    Ok(pair)
}

/// An ECDSA P-256 certificate for `localhost`, the loopback addresses and the host's own name.
fn generate(now: i64, host: Option<&str>) -> Result<KeyPair, ErrorStack> {
    let key = PKey::from_ec_key(EcKey::generate(&*EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?)?)?;
    let mut name = X509NameBuilder::new()?;
    name.append_entry_by_nid(Nid::COMMONNAME, "portcullis self-signed")?;
    let name = name.build();
    let mut serial = BigNum::new()?;
    serial.rand(127, MsbOption::MAYBE_ZERO, false)?;

    let mut builder = X509::builder()?;
    builder.set_version(2)?;
    builder.set_serial_number(&*Asn1Integer::from_bn(&serial)?)?;
    builder.set_subject_name(&name)?;
    builder.set_issuer_name(&name)?;
    // An hour of grace for clients whose clock is behind.
    builder.set_not_before(&*Asn1Time::from_unix(now - 3_600)?)?;
    builder.set_not_after(&*Asn1Time::from_unix(now + i64::from(VALID_DAYS) * DAY)?)?;
    builder.set_pubkey(&key)?;

    let mut names = SubjectAlternativeName::new();
    names.dns("localhost").ip("127.0.0.1").ip("::1");
    if let Some(host) = host.filter(|host| *host != "localhost") {
        names.dns(host);
    }
    let names = names.build(&builder.x509v3_context(None, None))?;
    builder.append_extension(&names)?;
    builder.append_extension(&*BasicConstraints::new().critical().build()?)?;
    builder.append_extension(&*KeyUsage::new().critical().digital_signature().build()?)?;
    builder.append_extension(&*ExtendedKeyUsage::new().server_auth().build()?)?;
    builder.sign(&key, MessageDigest::sha256())?;
    Ok(KeyPair { chain: vec![builder.build()], key })
}

/// The host's name when it is one that can stand in a certificate.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim().to_ascii_lowercase();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    (!name.is_empty() && name.len() <= 253 && name.bytes().all(plain)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::certificate::validity;
    use crate::tls::names::CoveredNames;

    #[test]
    fn it_covers_localhost_the_loopback_addresses_and_the_host_for_ninety_days() {
        let now = 1_800_000_000;
        let pair = generate(now, Some("gateway.internal")).unwrap();
        let covered = CoveredNames::of(&pair.chain[0]);
        assert_eq!(covered.to_strings(), ["localhost", "gateway.internal", "127.0.0.1", "::1"]);
        assert_eq!(validity(&pair.chain[0]), Some((now - 3_600, now + 90 * DAY)));
        assert!(pair.chain[0].verify(&pair.key).unwrap());
    }

    #[test]
    fn it_stays_the_same_until_half_its_life_is_over() {
        let now = 1_900_000_000;
        let first = current(now).unwrap().chain[0].to_der().unwrap();
        assert_eq!(current(now + 44 * DAY).unwrap().chain[0].to_der().unwrap(), first);
        assert_ne!(current(now + 46 * DAY).unwrap().chain[0].to_der().unwrap(), first);
    }
}
