//! Is an endpoint who it should be? Whom its certificate must name.
//!
//! Names are the engine's business. Addresses are not: it would look for them among the names of a
//! certificate (RFC 9525 section 6 keeps the two apart). So it verifies the chain, and whether the
//! certificate is for the address is found out here at the end of the handshake. The engine takes no for an
//! answer only later: whoever connects asks [`verify`] before anything is sent.

use super::transport::{Expected, TransportTls};
use crate::config::EndpointAddress;
use boring::ssl::SslRef;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::upstreams::peer::PeerOptions;
use pingora_core::{Error, ErrorType, Result};
use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

/// Marks a connection to somebody whose certificate is not for this address.
struct Stranger(IpAddr);

/// What the engine takes for the server name: empty where nothing is to be verified, and never sent when it
/// is an address (RFC 6066 section 3).
pub(super) fn server_name(tls: &TransportTls, address: &EndpointAddress) -> String {
    match &tls.expected {
        Expected::Name(name) => name.clone(),
        Expected::Address(_) | Expected::OwnAddress | Expected::Anybody => {
            expected_address(tls, address).map_or_else(String::new, |address| address.to_string())
        }
    }
}

/// Has the engine ask for it.
pub(super) fn demand(options: &mut PeerOptions, tls: &TransportTls, address: &EndpointAddress) {
    options.verify_cert = tls.verify;
    options.verify_hostname = tls.verify;
    let Some(address) = expected_address(tls, address).filter(|_| tls.verify) else { return };
    options.verify_hostname = false;
    let written = address.to_string();
    let judge = move |ssl: &SslRef| {
        let certificate = ssl.peer_certificate();
        let named = certificate.is_some_and(|it| it.check_ip_asc(&written).unwrap_or(false));
        (!named).then(|| Arc::new(Stranger(address)) as Arc<dyn Any + Send + Sync>)
    };
    options.upstream_tls_handshake_complete_hook = Some(Arc::new(judge));
}

/// Whether a connection that was made may be used; `digest` = what is known of its handshake.
///
/// # Errors
/// When the certificate is not for the endpoint's address.
pub fn verify(digest: Option<&SslDigest>) -> Result<()> {
    match digest.and_then(|digest| digest.extension.get::<Stranger>()) {
        None => Ok(()),
        Some(Stranger(address)) => {
            Error::e_explain(ErrorType::InvalidCert, format!("the certificate is not for {address}"))
        }
    }
}

fn expected_address(tls: &TransportTls, address: &EndpointAddress) -> Option<IpAddr> {
    match (&tls.expected, address) {
        (Expected::Address(address), _) => Some(*address),
        (Expected::OwnAddress, EndpointAddress::Socket(socket)) => Some(socket.ip().to_canonical()),
        _ => None,
    }
}
