//! Who are we? Certificates, chosen by server name, and the TLS contexts that present them.
//!
//! [`store`] compiles `certificates:` and `tls:` into one [`store::CertificateStore`] per snapshot;
//! [`candidates`] judges the certificates together, [`pem`] each pair of files, [`names`] says which
//! names a certificate covers, [`ocsp`] whether a response may be stapled, [`grace`] what may serve on out of its
//! time and [`overdue`] says so, `credential` puts a second certificate into a context, [`context`] holds the protocol policy, [`tickets`] the process-lived
//! session ticket keys, [`certificate`] what operators are told, [`self_signed`] the certificate of a
//! gateway that was given none. [`client_auth`] says which clients the names of a certificate let in,
//! [`client_certificate`] what is known of one that came in, [`demands`] whether a connection made for
//! one name may serve another.
//!
//! The room knows nothing of sockets, routes or requests.

pub mod candidates;
pub mod certificate;
pub mod client_auth;
pub mod client_certificate;
pub mod context;
mod credential;
pub mod demands;
#[cfg(test)]
mod fixtures;
pub mod grace;
pub mod names;
pub mod ocsp;
pub mod overdue;
pub mod pem;
pub mod self_signed;
pub mod store;
pub mod tickets;
