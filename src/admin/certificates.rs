//! `/v1/certificates`: who the gateway says it is, and until when.

use super::{AdminState, rfc3339, unix_seconds};
use crate::snapshot::CertificateInfo;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::time::SystemTime;

const SECONDS_A_DAY: i64 = 86_400;

/// The body of `/v1/certificates`.
#[derive(Debug, Serialize)]
pub struct Certificates {
    generation: u64,
    certificates: Vec<CertificateView>,
}

#[derive(Debug, Serialize)]
struct CertificateView {
    name: String,
    /// Server names it is chosen for.
    names: Vec<String>,
    /// Whether clients take it now.
    state: ValidityState,
    /// RFC 3339.
    not_before: Option<String>,
    /// RFC 3339.
    not_after: Option<String>,
    /// Seconds since 1970.
    not_after_seconds: i64,
    /// Whole days, rounded down; negative once it has expired.
    days_left: i64,
    issuer: String,
    serial: String,
    fingerprint_sha256: String,
    key_type: String,
    /// Used for clients without SNI or with an unknown name.
    default: bool,
    /// Null when none is configured.
    ocsp: Option<OcspView>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum ValidityState {
    Valid,
    Expired,
    NotYetValid,
}

#[derive(Debug, Serialize)]
struct OcspView {
    /// Whether clients that ask get it.
    stapled: bool,
    /// Until when it holds, RFC 3339; null = it does not say.
    next_update: Option<String>,
    /// Why it never was stapled; null when it was.
    trouble: Option<String>,
}

/// `GET /v1/certificates`.
pub async fn certificates(State(state): State<AdminState>) -> Json<Certificates> {
    let now = unix_seconds(SystemTime::now());
    let snapshot = state.store.pin();
    let certificates = snapshot.certificates.certificates().iter().map(|certificate| CertificateView {
        name: certificate.name.clone(),
        names: certificate.names.clone(),
        state: validity(certificate, now),
        not_before: rfc3339(certificate.not_before),
        not_after: rfc3339(certificate.not_after),
        not_after_seconds: certificate.not_after,
        days_left: days_left(certificate.not_after, now),
        issuer: certificate.issuer.clone(),
        serial: certificate.serial.clone(),
        fingerprint_sha256: certificate.fingerprint_sha256.clone(),
        key_type: certificate.key_type.to_string(),
        default: certificate.default,
        ocsp: certificate.ocsp.as_ref().map(|ocsp| OcspView {
            stapled: ocsp.is_stapled(now),
            next_update: ocsp.next_update.and_then(rfc3339),
            trouble: ocsp.trouble.clone(),
        }),
    });
    Json(Certificates { generation: snapshot.generation, certificates: certificates.collect() })
}

fn validity(certificate: &CertificateInfo, now: i64) -> ValidityState {
    if certificate.not_after <= now {
        ValidityState::Expired
    } else if now < certificate.not_before {
        ValidityState::NotYetValid
    } else {
        ValidityState::Valid
    }
}

fn days_left(not_after: i64, now: i64) -> i64 {
    not_after.saturating_sub(now).div_euclid(SECONDS_A_DAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_rounded_down_past_zero() {
        assert_eq!(days_left(SECONDS_A_DAY * 2 - 1, 0), 1);
        assert_eq!(days_left(10, 0), 0);
        assert_eq!(days_left(0, 10), -1);
    }

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(rfc3339(0).as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(rfc3339(i64::MAX), None);
    }
}
