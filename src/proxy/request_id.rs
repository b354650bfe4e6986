//! X-Request-Id: kept from trusted peers, created otherwise.

use http::HeaderValue;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::cell::RefCell;

/// Longest id kept from a peer.
const LONGEST: usize = 128;

thread_local! {
    static RANDOM: RefCell<SmallRng> = RefCell::new(SmallRng::from_entropy());
}

/// The id of one exchange; created when first asked for.
#[derive(Debug, Clone, Default)]
pub enum RequestId {
    /// Nobody has asked yet.
    #[default]
    Unset,
    /// 128 random bits in hexadecimal. Unique, not secret.
    Created([u8; 32]),
    /// Named by a trusted peer.
    Kept(HeaderValue),
}

impl RequestId {
    /// Takes over a trusted peer's id if it is a short token of letters, digits and `-_.:+/=@`.
    pub fn keep(&mut self, value: &HeaderValue) {
        let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:+/=@".contains(byte);
        if (1..=LONGEST).contains(&value.len()) && value.as_bytes().iter().all(allowed) {
            *self = RequestId::Kept(value.clone());
        }
    }

    /// The id as text; creates it if nobody has asked before.
    pub fn as_str(&mut self) -> &str {
        if let RequestId::Unset = self {
            *self = RequestId::Created(create());
        }
        match self {
            RequestId::Unset => "",
            RequestId::Created(hex) => std::str::from_utf8(hex).unwrap_or_default(),
            RequestId::Kept(value) => value.to_str().unwrap_or_default(),
        }
    }

    /// The id as a header value.
    pub fn value(&mut self) -> HeaderValue {
        if let RequestId::Kept(value) = self {
            return value.clone();
        }
        HeaderValue::from_str(self.as_str()).unwrap_or_else(|_| HeaderValue::from_static("-"))
    }
}

fn create() -> [u8; 32] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut bits: u128 = RANDOM.with_borrow_mut(Rng::r#gen);
    let mut text = [0; 32];
    for digit in text.iter_mut().rev() {
        *digit = HEX[(bits & 15) as usize];
        bits >>= 4;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_ids_are_hex_stable_and_differ() {
        let (mut one, mut other) = (RequestId::default(), RequestId::default());
        let first = one.as_str().to_owned();
        assert_eq!(first.len(), 32);
        assert!(first.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(one.as_str(), first);
        assert_ne!(other.as_str(), first);
    }

    #[test]
    fn only_harmless_ids_are_kept() {
        for (value, kept) in [("abc-1.2_3", true), ("a b", false), ("<x>", false), ("", false)] {
            let mut id = RequestId::default();
            id.keep(&HeaderValue::from_static(value));
            assert_eq!(id.as_str() == value, kept, "{value:?}");
        }
        let mut id = RequestId::default();
        id.keep(&HeaderValue::try_from("x".repeat(129)).expect("value"));
        assert_eq!(id.as_str().len(), 32);
    }
}
