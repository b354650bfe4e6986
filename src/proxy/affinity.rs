//! What ties a request to an endpoint: the key its upstream hashes, the cookie it gave the client.
//!
//! Knows nothing of who is chosen.

use super::context::Exchange;
use crate::config::{BalanceConfig, HashBy};
use crate::upstream::pool::Pool;
use crate::upstream::slots::key;
use crate::upstream::split::Split;
use crate::upstream::sticky;
use crate::upstream::tier::Wish;
use http::{HeaderMap, header};
use pingora::http::ResponseHeader;
use pingora_core::protocols::http::ServerSession;
use std::net::IpAddr;
use std::sync::Arc;

/// What a request asks of the choice among the endpoints of `pool`.
pub fn wish(pool: &Pool, session: &ServerSession, exchange: &Exchange) -> Wish {
    let head = session.req_header();
    let key = match &pool.config().balance {
        BalanceConfig::Hash(by) => match by {
            HashBy::Client => Some(match exchange.client {
                IpAddr::V4(client) => key(&client.octets()),
                IpAddr::V6(client) => key(&client.octets()),
            }),
            HashBy::Path => Some(key(head.uri.path().as_bytes())),
            HashBy::Header(name) => head.headers.get(name.as_str()).map(|value| key(value.as_bytes())),
            HashBy::Cookie(name) => cookie(&head.headers, name).map(key),
        },
        _ => None,
    };
    Wish { key, token: token(pool, &head.headers) }
}

/// The upstream of a split that served this client before.
pub fn upstream<'a>(split: &'a Split, session: &ServerSession) -> Option<&'a Arc<Pool>> {
    let headers = &session.req_header().headers;
    split.tied(|pool| token(pool, headers).is_some_and(|token| pool.ties(token)))
}

/// Ties the client to the endpoint that has answered, unless it is already.
pub fn tie(session: &ServerSession, head: &mut ResponseHeader, exchange: &Exchange) {
    let (Some(pool), Some(endpoint)) = (&exchange.attempt.pool, &exchange.attempt.endpoint) else { return };
    let Some(tie) = &endpoint.tie else { return };
    if token(pool, &session.req_header().headers) != Some(tie.token) {
        let cookie = if exchange.secure { &tie.secure } else { &tie.plain };
        // Typed name and value: cannot fail.
        let _ = head.append_header(header::SET_COOKIE, cookie.clone());
    }
}

fn token(pool: &Pool, headers: &HeaderMap) -> Option<u128> {
    cookie(headers, pool.sticky_cookie()?).and_then(sticky::token)
}

/// The value of the first cookie of this name (RFC 6265 section 5.4).
fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let lines = headers.get_all(header::COOKIE).iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.map(<[u8]>::trim_ascii).find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::COOKIE, header::HeaderValue::from_static(line));
        }
        headers
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name_in_any_line() {
        let headers = headers(&["a=1; session2=no; xsession=no", "theme=dark;session=yes==; session=late"]);
        assert_eq!(cookie(&headers, "session"), Some(&b"yes=="[..]));
        assert_eq!(cookie(&headers, "a"), Some(&b"1"[..]));
        assert_eq!(cookie(&headers, "ession"), None);
        assert_eq!(cookie(&HeaderMap::new(), "a"), None);
    }
}
