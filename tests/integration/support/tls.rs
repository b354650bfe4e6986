//! The client side of TLS, with every knob in the test's hand.

use super::certificates::Identity;
use boring::ssl::{Ssl, SslContext, SslMethod, SslRef, SslSession, SslSessionCacheMode, SslStream};
use boring::ssl::{SslVerifyMode, SslVersion};
use boring::x509::X509;
use foreign_types_shared::ForeignType;
use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

/// How to shake hands. Verifies nothing unless told: tests compare certificates themselves.
pub struct TlsClient {
    context: SslContext,
    name: Option<String>,
    resume: bool,
    session: Arc<Mutex<Option<SslSession>>>,
}

/// Knobs of a [`TlsClient`].
#[derive(Default)]
pub struct TlsOptions {
    /// Server name asked for.
    pub name: Option<&'static str>,
    /// Protocols offered, such as `h2`.
    pub alpn: &'static [&'static str],
    /// Lowest and highest version.
    pub versions: Option<(SslVersion, SslVersion)>,
    /// Offer the last session seen.
    pub resume: bool,
    /// Shown when the server asks for a certificate.
    pub identity: Option<Identity>,
    /// Ask for an OCSP response.
    pub ocsp: bool,
    /// Key agreement groups offered.
    pub groups: Option<&'static str>,
    /// Signature algorithms offered.
    pub algorithms: Option<&'static str>,
}

/// What a handshake settled.
#[derive(Debug)]
pub struct TlsFacts {
    /// Such as `TLSv1.3`.
    pub version: String,
    /// The protocol chosen.
    pub alpn: Option<String>,
    /// Whether a session was resumed.
    pub resumed: bool,
    /// The OCSP response the server added.
    pub ocsp: Option<Vec<u8>>,
    /// The key agreement group.
    pub group: Option<&'static str>,
    /// The leaf the server showed; a resumed session remembers the first one.
    pub certificate: X509,
}

impl TlsClient {
    /// With this server name and nothing else special.
    pub fn named(name: &'static str) -> Self {
        TlsClient::new(TlsOptions { name: Some(name), ..TlsOptions::default() })
    }

    /// With these options.
    pub fn new(options: TlsOptions) -> Self {
        let mut builder = SslContext::builder(SslMethod::tls()).expect("a context");
        builder.set_verify(SslVerifyMode::NONE);
        if let Some((min, max)) = options.versions {
            builder.set_min_proto_version(Some(min)).expect("a version");
            builder.set_max_proto_version(Some(max)).expect("a version");
        }
        let alpn: Vec<u8> =
            options.alpn.iter().flat_map(|name| [&[name.len() as u8], name.as_bytes()].concat()).collect();
        if !alpn.is_empty() {
            builder.set_alpn_protos(&alpn).expect("protocols");
        }
        if let Some(identity) = &options.identity {
            builder.set_certificate(&identity.certificate).expect("a certificate");
            builder.set_private_key(&identity.key).expect("its key");
        }
        if options.ocsp {
            builder.enable_ocsp_stapling();
        }
        if let Some(groups) = options.groups {
            builder.set_curves_list(groups).expect("groups");
        }
        if let Some(algorithms) = options.algorithms {
            builder.set_sigalgs_list(algorithms).expect("algorithms");
        }
        let session = Arc::new(Mutex::new(None));
        let seen = Arc::clone(&session);
        builder.set_session_cache_mode(SslSessionCacheMode::CLIENT);
        builder.set_new_session_callback(move |_, session| *seen.lock().unwrap() = Some(session));
        let name = options.name.map(str::to_owned);
        TlsClient { context: builder.build(), name, resume: options.resume, session }
    }

    /// Shakes hands over a connection.
    pub fn connect(&self, stream: TcpStream) -> io::Result<SslStream<TcpStream>> {
        self.ssl().connect(stream).map_err(|error| io::Error::other(error.to_string()))
    }

    /// A fresh client-side session object.
    pub fn ssl(&self) -> Ssl {
        let mut ssl = Ssl::new(&self.context).expect("a session object");
        if let Some(name) = &self.name {
            ssl.set_hostname(name).expect("a server name");
        }
        if let (true, Some(session)) = (self.resume, self.session.lock().unwrap().as_ref()) {
            // SAFETY: the session came from this very context.
            unsafe { ssl.set_session(session) }.expect("a session");
        }
        ssl
    }

    /// The same client, with the session it has got, asking for another name.
    pub fn renamed(&self, name: &str) -> TlsClient {
        TlsClient {
            context: self.context.clone(),
            name: Some(name.to_owned()),
            resume: self.resume,
            session: Arc::clone(&self.session),
        }
    }

    /// The name of the key that sealed the ticket at hand, which its first 16 bytes are (RFC 5077
    /// section 4).
    pub fn ticket_key(&self) -> Option<[u8; 16]> {
        let held = self.session.lock().unwrap();
        let (mut ticket, mut length) = (std::ptr::null(), 0);
        // SAFETY: the session lives while `held` does; both places are written before they are read.
        let ticket = unsafe {
            boring_sys::SSL_SESSION_get0_ticket(held.as_ref()?.as_ptr(), &raw mut ticket, &raw mut length);
            if ticket.is_null() { &[] } else { std::slice::from_raw_parts(ticket, length) }
        };
        ticket.first_chunk().copied()
    }

    /// Whether the server has given a session that could be resumed.
    pub fn has_session(&self) -> bool {
        self.session.lock().unwrap().is_some()
    }
}

impl TlsFacts {
    /// Of a finished handshake.
    pub fn of(ssl: &SslRef) -> Self {
        TlsFacts {
            version: ssl.version_str().to_owned(),
            alpn: ssl.selected_alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned()),
            resumed: ssl.session_reused(),
            ocsp: ssl.ocsp_status().map(<[u8]>::to_vec),
            group: ssl.curve_name(),
            certificate: ssl.peer_certificate().expect("a server certificate"),
        }
    }
}
