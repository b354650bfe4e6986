//! Values written as one word or number (`30s`, `10.0.0.0/8`, `auto`): from their text, with a good
//! error. Does not know which values there are.

use super::error::ValueError;
use serde::Deserializer;
use serde::de::{Error, Visitor};
use std::fmt;

/// Reads a scalar through `parse`; numbers come as the text they were written as, as far as YAML
/// keeps it. `expecting` completes "expected …" for lists, mappings and booleans.
pub(super) fn scalar<'de, D, T>(
    deserializer: D,
    expecting: &'static str,
    parse: fn(&str) -> Result<T, ValueError>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(Scalar { expecting, parse })
}

struct Scalar<T> {
    expecting: &'static str,
    parse: fn(&str) -> Result<T, ValueError>,
}

impl<T> Visitor<'_> for Scalar<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(ValueError::into_serde)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}
