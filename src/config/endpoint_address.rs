//! Where an endpoint is: an address, a Unix socket, or a name that stands for addresses.

use super::error::{ValueError, quoted};
use super::text;
use super::{address, route};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::SocketAddr;

/// Longest name, without a dot at its end (RFC 1035 section 2.3.4).
const MAX_NAME: usize = 253;

/// What a Unix socket begins with.
const UNIX: &str = "unix:";
/// Longest path of one (`sun_path`, with its end).
const MAX_PATH: usize = 107;

/// An address and a port, `127.0.0.1:9000`, a name and a port, `app.internal:9000`, or a Unix socket,
/// `unix:/run/app.sock`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum EndpointAddress {
    /// An address.
    Socket(SocketAddr),
    /// A Unix socket, by its absolute path.
    Unix(String),
    /// A name that is resolved while running.
    Name {
        /// In lower case; a dot at its end says that it is complete.
        host: String,
        /// From 1 to 65535.
        port: u16,
    },
}

impl EndpointAddress {
    /// The address; `None` for names and Unix sockets.
    pub fn socket(&self) -> Option<SocketAddr> {
        match self {
            EndpointAddress::Socket(address) => Some(*address),
            EndpointAddress::Name { .. } | EndpointAddress::Unix(_) => None,
        }
    }

    /// Whether it stands for itself, as all but names do.
    pub fn is_fixed(&self) -> bool {
        !matches!(self, EndpointAddress::Name { .. })
    }

    pub(super) fn parse(text: &str) -> Result<Self, ValueError> {
        if let Some(path) = text.strip_prefix(UNIX) {
            return check_path(path).map(|()| EndpointAddress::Unix(path.to_owned()));
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            let bare = rest.split('/').next().unwrap_or_default();
            let hint = match scheme.eq_ignore_ascii_case("https") {
                true => format!("write {bare}, and `tls: {{}}` beside the endpoints in upstreams.NAME"),
                false => format!("write {bare}"),
            };
            let error = ValueError::new(format!("{} is a URL, not an address and port", quoted(text)));
            return Err(error.with_hint(hint));
        }
        let refused = match address::parse(text) {
            Ok(address) => return Ok(EndpointAddress::Socket(address)),
            Err(refused) => refused,
        };
        let Some((host, port)) = text.rsplit_once(':').filter(|(host, _)| looks_like_a_name(host)) else {
            return Err(match looks_like_a_name(text) {
                true => refused.with_hint(format!("add a port, such as {text}:9000")),
                false => refused,
            });
        };
        check_name(host)?;
        if port.len() > 1 && port.starts_with('0') {
            // It says so already.
            return Err(refused);
        }
        let port = match port.parse::<u16>() {
            Ok(number) if number > 0 && !port.starts_with('+') => number,
            _ => {
                let error = ValueError::new(format!("{} is not a name and port", quoted(text)));
                return Err(error.with_hint("ports go from 1 to 65535"));
            }
        };
        Ok(EndpointAddress::Name { host: host.to_ascii_lowercase(), port })
    }
}

fn check_path(path: &str) -> Result<(), ValueError> {
    let (what, hint) = if !path.starts_with('/') {
        ("names no socket", "write its absolute path, such as unix:/run/app.sock")
    } else if path.len() > MAX_PATH {
        ("is too long", "paths of sockets have at most 107 bytes")
    } else if !path.chars().all(route::is_label_char) {
        ("cannot be a name in metrics", "printable ASCII characters only")
    } else {
        return Ok(());
    };
    Err(ValueError::new(format!("{} {what}", quoted(&format!("{UNIX}{path}")))).with_hint(hint))
}

/// The last label has a letter: `10.0.0:80` is a mistake, and no name.
fn looks_like_a_name(host: &str) -> bool {
    let last = host.strip_suffix('.').unwrap_or(host).rsplit('.').next().unwrap_or("");
    last.bytes().any(|byte| byte.is_ascii_alphabetic())
        && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
}

fn check_name(host: &str) -> Result<(), ValueError> {
    let name = host.strip_suffix('.').unwrap_or(host);
    let sound = name.len() <= MAX_NAME && name.split('.').all(|label| (1..=63).contains(&label.len()));
    if sound {
        return Ok(());
    }
    let error = ValueError::new(format!("{} is not a host name", quoted(host)));
    Err(error.with_hint("labels have 1 to 63 characters, all of it at most 253"))
}

impl fmt::Display for EndpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndpointAddress::Socket(address) => address.fmt(f),
            EndpointAddress::Unix(path) => write!(f, "{UNIX}{path}"),
            EndpointAddress::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

impl From<SocketAddr> for EndpointAddress {
    fn from(address: SocketAddr) -> Self {
        EndpointAddress::Socket(address)
    }
}

impl<'de> Deserialize<'de> for EndpointAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::scalar(deserializer, "an address or a name with a port, such as 127.0.0.1:9000", Self::parse)
    }
}

impl Serialize for EndpointAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_told_apart() {
        for text in ["127.0.0.1:9000", "[::1]:9000"] {
            assert_eq!(EndpointAddress::parse(text).unwrap().socket().unwrap().to_string(), text);
        }
        for (text, shown) in [
            ("app.internal:9001", "app.internal:9001"),
            ("LocalHost:80", "localhost:80"),
            ("my_app.default.svc.:65535", "my_app.default.svc.:65535"),
            ("1a:80", "1a:80"),
        ] {
            let address = EndpointAddress::parse(text).unwrap();
            assert!(matches!(address, EndpointAddress::Name { .. }));
            assert_eq!(address.to_string(), shown);
        }
    }

    #[test]
    fn sockets_are_read_by_their_absolute_path() {
        let socket = EndpointAddress::parse("unix:/run/app.sock").unwrap();
        assert_eq!(socket, EndpointAddress::Unix("/run/app.sock".to_owned()));
        assert_eq!(socket.to_string(), "unix:/run/app.sock");
        let long = format!("unix:/{}", "x".repeat(107));
        for wrong in ["unix:", "unix:app.sock", "unix:/a\u{e9}", "unix:/a\nb", &long] {
            assert!(EndpointAddress::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_neither_says_what_is_wrong() {
        let long = format!("{}:80", "x".repeat(64));
        for (text, part) in [
            ("app.internal", "such as app.internal:9000"),
            ("app.internal:0", "from 1 to 65535"),
            ("app.internal:080", "without leading zeros: 80"),
            ("app.internal:99999", "from 1 to 65535"),
            ("10.0.0:80", "such as 127.0.0.1:9000"),
            ("010.0.0.1:80", "such as 127.0.0.1:9000"),
            ("http://app.internal:80", "write app.internal:80"),
            ("https://app.internal:443/x", "write app.internal:443, and `tls: {}`"),
            ("a..b:80", "not a host name"),
            (long.as_str(), "not a host name"),
            ("127.0.0.1", "such as 127.0.0.1:8080"),
        ] {
            let error = EndpointAddress::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
