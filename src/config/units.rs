//! Values with units: sizes (`8KiB`) and durations (`30s`).

use std::time::Duration;

/// A number of bytes, written with `B`, `KiB`, `MiB` or `GiB`; only `0` may stand without a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// `n` × 1,024 bytes.
    pub const fn kib(n: u64) -> Self {
        ByteSize(n * 1024)
    }
}

/// A span of time, written with `ms`, `s`, `m` or `h`; only `0` may stand without a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct HumanDuration(pub Duration);

impl HumanDuration {
    /// `n` seconds.
    pub const fn secs(n: u64) -> Self {
        HumanDuration(Duration::from_secs(n))
    }
}

macro_rules! via_text {
    ($type:ty) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
                Err(serde::de::Error::custom("not yet"))
            }
        }
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&format!("{self:?}"))
            }
        }
    };
}
via_text!(ByteSize);
via_text!(HumanDuration);
via_text!(super::Workers);
