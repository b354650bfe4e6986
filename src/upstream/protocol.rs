//! Which version of HTTP is spoken to an endpoint? Pingora's peer, set for it.
//!
//! A connection carries one request at a time in HTTP/2 too. So each request can be ended without the
//! others, a client that takes its answer slowly holds up nobody, and endpoints get requests as the
//! balancer chose and not as connections happen to be. Knows nothing of TLS settings.

use crate::config::UpstreamProtocol;
use pingora_core::upstreams::peer::HttpPeer;

/// Bytes of an answer taken from the endpoint before the client has taken them. With Pingora's own
/// 8 MiB, slow clients would fill the memory.
const WINDOW: u32 = 256 * 1024;

/// Makes connections to `peer` speak `protocol`.
pub(super) fn set(peer: &mut HttpPeer, protocol: UpstreamProtocol) {
    let options = &mut peer.options;
    let (max, min) = match protocol {
        UpstreamProtocol::Http1 => (1, 1),
        UpstreamProtocol::Http2 | UpstreamProtocol::H2c => (2, 2),
        UpstreamProtocol::Auto => (2, 1),
    };
    options.set_http_version(max, min);
    options.max_h2_streams = 1;
    options.h2_stream_window_size = Some(WINDOW);
    options.h2_connection_window_size = Some(WINDOW);
}
