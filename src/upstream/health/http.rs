//! A check by one request, in the HTTP the upstream speaks: its status is a good one, and its body holds
//! a text.
//!
//! Does not follow redirects: a redirect is an answer like any other.

use super::{Failure, FailureKind, MAX_BODY, http2};
use crate::config::{HealthCheckConfig, HealthCheckMethod, StatusRange};
use ::http::Request;
use bytes::Bytes;
use memchr::memmem;
use pingora::http::RequestHeader;
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::v1::client::HttpSession;
use pingora_core::upstreams::peer::HttpPeer;

/// How a check names itself.
pub(super) const USER_AGENT: &str = concat!("portcullis/", env!("CARGO_PKG_VERSION"), " (health check)");
/// Informational answers before the one that counts.
const MAX_INFORMATIONAL: usize = 8;

/// What is asked, and what a good answer is.
#[derive(Debug)]
pub(super) struct HttpProbe {
    method: &'static str,
    path: String,
    /// `None` = the address of the endpoint.
    host: Option<String>,
    good: Vec<StatusRange>,
    body: Option<memmem::Finder<'static>>,
}

impl HttpProbe {
    pub(super) fn new(config: &HealthCheckConfig, host: Option<String>) -> HttpProbe {
        HttpProbe {
            method: match config.method.unwrap_or(HealthCheckMethod::Get) {
                HealthCheckMethod::Get => "GET",
                HealthCheckMethod::Head => "HEAD",
                HealthCheckMethod::Options => "OPTIONS",
            },
            path: config.path.clone().unwrap_or_else(|| "/".to_owned()),
            host,
            good: config.status.clone().unwrap_or_else(|| vec![StatusRange { first: 200, last: 200 }]),
            body: config.body.as_ref().map(|text| memmem::Finder::new(text).into_owned()),
        }
    }

    /// Over HTTP/1.1.
    pub(super) async fn ask(&self, stream: Stream, peer: &HttpPeer) -> Result<(), Failure> {
        let mut session = HttpSession::new(stream);
        let answered = self.exchange(&mut session, peer).await;
        session.shutdown().await;
        answered
    }

    /// Over HTTP/2.
    pub(super) async fn ask_http2(&self, stream: Stream, peer: &HttpPeer) -> Result<(), Failure> {
        let request = Request::builder()
            .method(self.method)
            .uri(super::uri(self.host.as_deref(), peer, &self.path))
            .header("user-agent", USER_AGENT)
            .header("accept", "*/*")
            .body(())
            .map_err(Failure::protocol)?;
        let enough = |head: &::http::response::Parts, body: &[u8]| {
            let bad = self.status(head.status.as_u16()).is_err();
            bad || self.body.as_ref().is_none_or(|text| text.find(body).is_some())
        };
        let answer = http2::exchange(stream, request, Bytes::new(), enough).await?;
        self.status(answer.head.status.as_u16())?;
        match &self.body {
            Some(text) if text.find(&answer.body).is_none() => Err(absent(text, &answer.body)),
            _ => Ok(()),
        }
    }

    async fn exchange(&self, session: &mut HttpSession, peer: &HttpPeer) -> Result<(), Failure> {
        let request = self.request(peer).map_err(|error| broken(&error))?;
        session.write_request_header(Box::new(request)).await.map_err(|error| broken(&error))?;
        let mut status = 100;
        for _ in 0..=MAX_INFORMATIONAL {
            session.read_response().await.map_err(|error| broken(&error))?;
            status = session.get_status().map_or(0, |status| status.as_u16());
            if status >= 200 {
                break;
            }
        }
        self.status(status)?;
        match &self.body {
            Some(text) => found(text, session).await,
            None => Ok(()),
        }
    }

    fn status(&self, status: u16) -> Result<(), Failure> {
        match self.good.iter().any(|good| good.contains(status)) {
            true => Ok(()),
            false => Err(Failure::new(FailureKind::Status, format_args!("status {status}"))),
        }
    }

    fn request(&self, peer: &HttpPeer) -> pingora_core::Result<RequestHeader> {
        let mut request = RequestHeader::build(self.method, self.path.as_bytes(), Some(4))?;
        request.insert_header("Host", super::authority(self.host.as_deref(), peer))?;
        request.insert_header("User-Agent", USER_AGENT)?;
        request.insert_header("Accept", "*/*")?;
        request.insert_header("Connection", "close")?;
        Ok(request)
    }
}

/// Reads no more of the body than it takes to find the text.
async fn found(text: &memmem::Finder<'static>, session: &mut HttpSession) -> Result<(), Failure> {
    let mut body = Vec::new();
    while let Some(piece) = session.read_body_bytes().await.map_err(|error| broken(&error))? {
        let room = MAX_BODY.saturating_sub(body.len());
        body.extend(piece.iter().take(room));
        if text.find(&body).is_some() {
            return Ok(());
        }
        if body.len() >= MAX_BODY {
            break;
        }
    }
    Err(absent(text, &body))
}

/// `read` is what was read of the body.
fn absent(text: &memmem::Finder<'static>, read: &[u8]) -> Failure {
    let text = String::from_utf8_lossy(text.needle());
    let whole = if read.len() < MAX_BODY { "the body" } else { "the first 64 KiB of the body" };
    Failure::new(FailureKind::Body, format_args!("{text:?} is not in {whole}"))
}

fn broken(error: &pingora_core::Error) -> Failure {
    Failure::protocol(super::plain(error))
}
