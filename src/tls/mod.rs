//! Who are we? Certificates, chosen by server name, and the TLS contexts that present them.
//!
//! [`store`] compiles `certificates:` and `tls:` into one [`store::CertificateStore`] per snapshot;
//! [`candidates`] judges the certificates together, [`pem`] each pair of files, [`names`] says which
//! names a certificate covers, [`context`] holds the protocol policy, [`tickets`] the process-lived
//! session ticket keys, [`certificate`] what operators are told, [`self_signed`] the certificate of a
//! gateway that was given none.
//!
//! The room knows nothing of sockets, routes or requests.

pub mod candidates;
pub mod certificate;
pub mod context;
#[cfg(test)]
mod fixtures;
pub mod names;
pub mod pem;
pub mod self_signed;
pub mod store;
pub mod tickets;
