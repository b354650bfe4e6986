//! The deadline a call of gRPC brings along, which also ends the wait for its upstream.

use http::{HeaderMap, HeaderName};
use std::time::Duration;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// How long the whole call may take, from the moment its head was there (`grpc-timeout: 250m`).
pub fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(GRPC_TIMEOUT)?.to_str().ok()?;
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

    #[test]
    fn deadlines_are_read_as_the_protocol_writes_them() {
        let read = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(GRPC_TIMEOUT, value.parse().expect("a value"));
            timeout(&headers)
        };
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
