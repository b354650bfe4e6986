//! The deadline a call of gRPC brings along, which also ends the wait for its upstream.

use crate::snapshot::grpc;
use http::{HeaderMap, HeaderName};
use std::time::Duration;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// How long the whole call may take, from the moment its head was there (`grpc-timeout: 250m`). `None` for what is
/// no call: to anybody else the field means nothing.
pub fn timeout(headers: &HeaderMap) -> Option<Duration> {
    // Nearly all requests end here.
    let value = headers.get(GRPC_TIMEOUT)?;
    if !grpc::is_call(headers) {
        return None;
    }
    let value = value.to_str().ok()?;
    let (number, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
    if number.len() > 8 || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header;

    fn fields(content_type: &'static str, timeout: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, content_type.parse().expect("a value"));
        headers.insert(GRPC_TIMEOUT, timeout.parse().expect("a value"));
        headers
    }

    #[test]
    fn only_calls_bring_deadlines() {
        assert_eq!(timeout(&fields("application/grpc+proto", "1S")), Some(Duration::from_secs(1)));
        for other in ["text/plain", "application/grpc-web", "application/json"] {
            assert_eq!(timeout(&fields(other, "1S")), None, "{other}");
        }
    }

    #[test]
    fn deadlines_are_read_as_the_protocol_writes_them() {
        let read = |value: &'static str| timeout(&fields("application/grpc", value));
        assert_eq!(read("250m"), Some(Duration::from_millis(250)));
        assert_eq!(read("1S"), Some(Duration::from_secs(1)));
        assert_eq!(read("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(read("5u"), Some(Duration::from_micros(5)));
        for wrong in ["", "S", "5", "-1S", "+1S", "1s", "123456789S", "1 S"] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        assert_eq!(timeout(&HeaderMap::new()), None);
    }
}
