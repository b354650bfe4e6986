//! Socket addresses as they are written: an IP address and a port.

use super::error::{ValueError, quoted};
use super::text;
use serde::Deserializer;
use std::net::{IpAddr, SocketAddr};

/// `deserialize_with` for an address with a port.
pub(super) fn socket<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    text::scalar(deserializer, "an address and port such as 127.0.0.1:9000", parse)
}

/// Reads `127.0.0.1:9000` or `[::1]:9000`; port 0, names and everything else are refused.
pub(super) fn parse(text: &str) -> Result<SocketAddr, ValueError> {
    let refuse =
        |hint: &str| ValueError::new(format!("{} is not an address and port", quoted(text))).with_hint(hint);
    let port = text.rsplit_once(':').map_or("", |(_, port)| port);
    if port.len() > 1 && port.starts_with('0') {
        return Err(refuse(&format!(
            "write the port without leading zeros: {}",
            port.trim_start_matches('0')
        )));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return match address.port() {
            0 => {
                Err(ValueError::new(format!("{} has port 0", quoted(text)))
                    .with_hint("ports go from 1 to 65535"))
            }
            _ => Ok(address),
        };
    }
    if text.parse::<IpAddr>().is_ok() {
        let bare = if text.contains(':') { format!("[{text}]") } else { text.to_owned() };
        return Err(refuse(&format!("add a port, such as {bare}:8080")));
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        let port = text.trim_start_matches('0');
        return Err(refuse(&format!("add an address, such as 127.0.0.1:{port} or 0.0.0.0:{port}")));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(refuse("write an IP address and a port, such as 127.0.0.1:9000"));
    };
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match (ip, port.parse::<u16>()) {
        (Ok(IpAddr::V6(ip)), Ok(_)) => Err(refuse(&format!("write [{ip}]:{port}"))),
        (Ok(_), _) => Err(refuse("ports go from 1 to 65535")),
        (Err(_), Ok(_)) if host.is_empty() => Err(refuse(&format!("add an address, such as 0.0.0.0:{port}"))),
        (Err(_), _) if looks_like_a_name(host) => {
            Err(refuse("an IP address is needed: only names of endpoints are resolved"))
        }
        _ => Err(refuse("write an IP address and a port, such as 127.0.0.1:9000")),
    }
}

fn looks_like_a_name(host: &str) -> bool {
    host.bytes().any(|b| b.is_ascii_alphabetic())
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_ports_are_read_and_everything_else_says_what_is_missing() {
        for text in ["127.0.0.1:9000", "[::]:7999", "0.0.0.0:1", "[2001:db8::1]:65535"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        for (text, part) in [
            ("127.0.0.1:0", "port 0"),
            ("127.0.0.1:99999", "from 1 to 65535"),
            ("127.0.0.1", "such as 127.0.0.1:8080"),
            ("::1", "such as [::1]:8080"),
            ("7999", "0.0.0.0:7999"),
            ("127.0.0.1:0800", "without leading zeros: 800"),
            (":7999", "0.0.0.0:7999"),
            ("localhost:80", "only names of endpoints"),
            ("localhost", "such as 127.0.0.1:9000"),
            ("http://1.2.3.4:80", "such as"),
            ("010.0.0.1:80", "such as"),
            ("", "such as"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
