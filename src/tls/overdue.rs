//! What of the certificates that serve has had its time, and what does that mean for clients?
//!
//! Such a thing keeps nothing else from serving ([`super::grace`]), so it must be said: in the log, in
//! `/readyz` and, by dates, in metrics.

use super::certificate::{CertificateInfo, OcspInfo};
use super::pem::date;

/// Something that is not good, or not good any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue {
    /// Since when, in seconds since 1970; [`i64::MIN`] = from the start.
    pub since: i64,
    /// What, and who notices.
    pub what: String,
}

/// Everything about one certificate that is overdue at `now`.
pub fn of(certificate: &CertificateInfo, now: i64) -> impl Iterator<Item = Overdue> {
    let authorities = certificate.client_authorities_until.filter(|until| *until <= now).map(|until| {
        let (name, until_date) = (&certificate.name, date(until));
        let what = format!(
            "{name}: the last authority of its client_auth expired on {until_date}: no client comes in"
        );
        Overdue { since: until, what }
    });
    let response = certificate.ocsp.as_ref().and_then(|ocsp| response(&certificate.name, ocsp, now));
    dates(certificate, now).into_iter().chain(response).chain(authorities)
}

fn dates(certificate: &CertificateInfo, now: i64) -> Option<Overdue> {
    let (name, from, until) = (&certificate.name, certificate.not_before, certificate.not_after);
    if until <= now {
        let what = format!("{name}: the certificate expired on {}: clients refuse it", date(until));
        return Some(Overdue { since: until, what });
    }
    (now < from).then(|| {
        let from = date(from);
        let what = format!(
            "{name}: the certificate is not valid before {from}: clients refuse it, if this machine's clock is right"
        );
        Overdue { since: i64::MIN, what }
    })
}

fn response(name: &str, ocsp: &OcspInfo, now: i64) -> Option<Overdue> {
    if let Some(trouble) = &ocsp.trouble {
        return Some(Overdue {
            since: i64::MIN,
            what: format!("{name}: no OCSP response is stapled: {trouble}"),
        });
    }
    let until = ocsp.next_update.filter(|until| *until <= now)?;
    let until_date = date(until);
    let what = format!("{name}: the OCSP response was good until {until_date} and is stapled no more");
    Some(Overdue { since: until, what })
}
