//! `workers:`, how many threads serve traffic.

use super::error::{ValueError, quoted};
use super::text;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Worker threads: a number from 1 to 1024, or `auto`, one per CPU this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Workers {
    /// One per CPU.
    #[default]
    Auto,
    /// Exactly this many.
    Count(u16),
}

impl Workers {
    /// The number of worker threads this stands for on this machine; never 0.
    pub fn resolve(self) -> usize {
        match self {
            Workers::Auto => std::thread::available_parallelism().map_or(1, usize::from),
            Workers::Count(count) => usize::from(count).max(1),
        }
    }
}

impl Workers {
    /// The most that may be asked for.
    pub const MAX: u16 = 1024;

    fn parse(text: &str) -> Result<Self, ValueError> {
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Workers::Auto);
        }
        match text.parse::<u16>() {
            Ok(count @ 1..=Workers::MAX) if !text.starts_with(['0', '+']) => Ok(Workers::Count(count)),
            _ => Err(ValueError::new(format!("{} is not auto or a number from 1 to 1024", quoted(text)))),
        }
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::scalar(deserializer, "auto or a number from 1 to 1024", Workers::parse)
    }
}

impl Serialize for Workers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Workers::Auto => serializer.serialize_str("auto"),
            Workers::Count(count) => serializer.serialize_u16(*count),
        }
    }
}
