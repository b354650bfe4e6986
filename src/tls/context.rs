//! How do we speak TLS? The protocol policy every certificate's context shares.
//!
//! TLS 1.3 and 1.2 only, forward-secret AEAD suites only, stateless tickets, no renegotiation
//! (BoringSSL servers never renegotiate), ALPN by our preference. Which certificate is presented is
//! [`super::store`]'s business.
//!
//! BoringSSL allocates record buffers when there is something to read or write and frees them when
//! drained, so there is no mode to set for idle connections.

use super::candidates::Candidate;
use super::credential::Credential;
use super::tickets::TicketKeys;
use crate::config::{TlsConfig, TlsVersion};
use boring::error::ErrorStack;
use boring::ex_data::Index;
use boring::ssl::{
    AlpnError, Ssl, SslContext, SslContextBuilder, SslContextRef, SslMethod, SslMode, SslOptions, SslRef,
    SslSessionCacheMode, SslVersion, select_next_proto,
};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// TLS 1.2 suites, best first. AES-128 before AES-256: both are out of reach, one costs less.
const TLS12_SUITES: &str = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:\
                            ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:\
                            ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";

/// TLS 1.3 suites, best first, where AES runs in hardware (RFC 8446 appendix B.4).
const TLS13_SUITES: [u16; 3] = [0x1301, 0x1302, 0x1303];

/// Key agreement groups, best first; the first one also withstands quantum computers.
const GROUPS: &str = "X25519MLKEM768:X25519:P-256:P-384";

/// Sessions are resumed within this context only; the same in every context of every snapshot that asks
/// for no client certificates. Those that do have one for each policy ([`super::client_auth`]).
const SESSION_CONTEXT: &[u8] = b"portcullis";

/// ALPN identifiers in wire form (RFC 7301 section 3.1), best first. HTTP/1.0 has one, too; who asks for it by name gets what
/// every client of HTTP/1 gets, by the version of each request.
const HTTP2_AND_HTTP1: &[u8] = b"\x02h2\x08http/1.1\x08http/1.0";
const HTTP1: &[u8] = b"\x08http/1.1\x08http/1.0";

/// Marks a session of a listener without HTTP/2. Of size zero, so that marking allocates nothing.
struct Http1Only;

static HTTP1_ONLY: LazyLock<Result<Index<Ssl, Http1Only>, ErrorStack>> = LazyLock::new(Ssl::new_ex_index);

/// A context that presents one certificate, or the first of several that the client can verify; all make the
/// same demands. The caller may add callbacks before it builds it.
pub fn builder(
    candidates: &[&Candidate],
    tls: &TlsConfig,
    tickets: &TicketKeys,
) -> Result<SslContextBuilder, ErrorStack> {
    let mut context = SslContext::builder(SslMethod::tls())?;
    let candidate = candidates.last();
    let min_version = candidate.map_or(tls.min_version, |candidate| candidate.min_version);
    context.set_min_proto_version(Some(version(min_version)))?;
    context.set_max_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_options(
        SslOptions::CIPHER_SERVER_PREFERENCE | SslOptions::NO_RENEGOTIATION | SslOptions::NO_COMPRESSION,
    );
    // An asynchronous writer comes back with the same bytes in another buffer, and with as many as fit.
    context.set_mode(SslMode::ACCEPT_MOVING_WRITE_BUFFER | SslMode::ENABLE_PARTIAL_WRITE);
    context.set_strict_cipher_list(TLS12_SUITES)?;
    prefer_cheap_suites(&mut context)?;
    context.set_curves_list(GROUPS)?;

    context.set_session_cache_mode(SslSessionCacheMode::OFF);
    context.set_session_id_context(SESSION_CONTEXT)?;
    if let Some(client_auth) = candidate.and_then(|candidate| candidate.client_auth.as_ref()) {
        client_auth.install(&mut context)?;
    }
    if tls.tickets {
        tickets.install(&mut context);
        limit_sessions(&mut context, tls.ticket_lifetime.0);
    } else {
        context.set_options(SslOptions::NO_TICKET);
    }
    context.set_alpn_select_callback(select_protocol);

    if let Some((last, before)) = candidates.split_last() {
        // Credentials come before the context's own certificate.
        for candidate in before {
            Credential::new(candidate)?.add_to(&mut context)?;
        }
        present(&mut context, last)?;
    }
    staple_in_time(&mut context, candidates)?;
    Ok(context)
}

/// Makes a candidate's the context's own certificate.
fn present(context: &mut SslContextBuilder, candidate: &Candidate) -> Result<(), ErrorStack> {
    let mut chain = candidate.pair.chain.iter();
    if let Some(leaf) = chain.next() {
        context.set_certificate(leaf)?;
    }
    for issuer in chain {
        context.add_extra_chain_cert(issuer.clone())?;
    }
    context.set_private_key(&candidate.pair.key)?;
    if let Some(response) = candidate.ocsp.as_ref().and_then(|response| response.stapled.as_ref()) {
        staple(context, response)?;
    }
    Ok(())
}

/// Keeps OCSP responses back once they have had their time: clients would refuse them. Asked only when a
/// client wants one. Before it is known which certificate that client gets, so all wait for the first.
fn staple_in_time(context: &mut SslContextBuilder, candidates: &[&Candidate]) -> Result<(), ErrorStack> {
    let responses = candidates.iter().filter_map(|candidate| candidate.ocsp.as_ref());
    let stapled = responses.filter(|response| response.stapled.is_some());
    let Some(until) = stapled.filter_map(|response| response.next_update).min() else { return Ok(()) };
    let until = UNIX_EPOCH + Duration::from_secs(u64::try_from(until).unwrap_or(0));
    context.set_status_callback(move |_| Ok(SystemTime::now() < until))
}

/// A server session on a context, offering HTTP/2 in ALPN or not.
pub fn session(context: &SslContextRef, http2: bool) -> Result<Ssl, ErrorStack> {
    let mut ssl = Ssl::new(context)?;
    if !http2 {
        let index = HTTP1_ONLY.as_ref().map_err(Clone::clone)?;
        ssl.set_ex_data(*index, Http1Only);
    }
    Ok(ssl)
}

/// A version as the library names it.
pub fn version(version: TlsVersion) -> SslVersion {
    match version {
        TlsVersion::V1_2 => SslVersion::TLS1_2,
        TlsVersion::V1_3 => SslVersion::TLS1_3,
    }
}

/// Our best protocol that the client offers too. A client that offers neither of ours is refused with
/// `no_application_protocol` (RFC 7301 section 3.2); one that knows HTTP/2 only gets the same from a
/// listener without it.
fn select_protocol<'a>(ssl: &mut SslRef, offered: &'a [u8]) -> Result<&'a [u8], AlpnError> {
    let http1_only = HTTP1_ONLY.as_ref().is_ok_and(|index| ssl.ex_data(*index).is_some());
    let ours = if http1_only { HTTP1 } else { HTTP2_AND_HTTP1 };
    select_next_proto(ours, offered).ok_or(AlpnError::ALERT_FATAL)
}

/// Sends an OCSP response to clients that ask for one (RFC 6066 section 8, RFC 8446 section 4.4.2.1).
fn staple(context: &mut SslContextBuilder, response: &[u8]) -> Result<(), ErrorStack> {
    // SAFETY: the context pointer is valid while `context` is borrowed; the response is copied.
    let set =
        unsafe { boring_sys::SSL_CTX_set_ocsp_response(context.as_ptr(), response.as_ptr(), response.len()) };
    if set == 1 { Ok(()) } else { Err(ErrorStack::get()) }
}

/// How long a session can be resumed, which TLS 1.3 clients are told; less than a second is not possible.
fn limit_sessions(context: &mut SslContextBuilder, lifetime: Duration) {
    let seconds = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX).max(1);
    // SAFETY: the context pointer is valid while `context` is borrowed; both set one number.
    unsafe {
        boring_sys::SSL_CTX_set_timeout(context.as_ptr(), seconds);
        boring_sys::SSL_CTX_set_session_psk_dhe_timeout(context.as_ptr(), seconds);
    }
}

/// Prefers TLS_AES_128_GCM_SHA256 where AES runs in hardware. BoringSSL would follow the client, and
/// OpenSSL clients ask for AES-256 first, which costs more for nothing.
fn prefer_cheap_suites(context: &mut SslContextBuilder) -> Result<(), ErrorStack> {
    // SAFETY: takes nothing and reads CPU features that are detected once.
    if unsafe { boring_sys::EVP_has_aes_hardware() } == 0 {
        return Ok(());
    }
    // SAFETY: the context pointer is valid while `context` is borrowed; the suites are copied, and a
    // null flags pointer means none.
    let set = unsafe {
        boring_sys::SSL_CTX_set1_tls13_ciphers(
            context.as_ptr(),
            TLS13_SUITES.as_ptr(),
            std::ptr::null(),
            TLS13_SUITES.len(),
        )
    };
    if set == 1 { Ok(()) } else { Err(ErrorStack::get()) }
}
