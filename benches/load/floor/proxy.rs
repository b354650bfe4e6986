//! The smallest application of the engine: one page for everybody, or one origin for everything. No access list, no
//! routes, no headers, no metrics, no log.

use async_trait::async_trait;
use bytes::Bytes;
use http::header;
use pingora::Result;
use pingora::http::ResponseHeader;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session};
use std::net::SocketAddr;

/// Requests one connection may carry; the engine wants a number of seconds for the wait in between.
const KEEPALIVE_SECONDS: u64 = 75;

/// What is done with every request.
#[derive(Clone)]
pub enum Floor {
    /// Answered with one page, rendered once.
    Page(Box<ResponseHeader>, Bytes),
    /// Sent on.
    Forward(SocketAddr),
}

impl Floor {
    /// A page with its status.
    ///
    /// # Errors
    /// When there is no such status.
    pub fn page(status: u16, body: Vec<u8>) -> Result<Self> {
        let mut head = ResponseHeader::build(status, Some(3))?;
        head.insert_header(header::CONTENT_TYPE, "text/html")?;
        head.insert_header(header::CONTENT_LENGTH, body.len())?;
        Ok(Floor::Page(Box::new(head), body.into()))
    }
}

#[async_trait]
impl ProxyHttp for Floor {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn request_filter(&self, session: &mut Session, _: &mut ()) -> Result<bool> {
        session.set_keepalive(Some(KEEPALIVE_SECONDS));
        let Floor::Page(head, body) = self else { return Ok(false) };
        session.write_response_header(head.clone(), false).await?;
        session.write_response_body(Some(body.clone()), true).await?;
        Ok(true)
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut ()) -> Result<Box<HttpPeer>> {
        match self {
            Floor::Forward(origin) => Ok(Box::new(HttpPeer::new(*origin, false, String::new()))),
            Floor::Page(..) => Err(pingora::Error::new(pingora::ErrorType::InternalError)),
        }
    }
}
