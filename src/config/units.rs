//! Values with units: sizes (`8KiB`) and durations (`30s`).

use super::error::{ValueError, quoted};
use super::text;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes, written with `B`, `KiB`, `MiB` or `GiB`; only `0` may stand without a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ByteSize(pub u64);

impl ByteSize {
    /// `n` × 1,024 bytes.
    pub const fn kib(n: u64) -> Self {
        ByteSize(n * 1024)
    }

    /// `n` × 1,024 KiB.
    pub const fn mib(n: u64) -> Self {
        ByteSize::kib(n * 1024)
    }
}

/// A span of time of at most a year, written with `ms`, `s`, `m` or `h`, or several of them
/// (`1m30s`); only `0` may stand without a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct HumanDuration(pub Duration);

impl HumanDuration {
    /// The longest: 365 days. Deadlines are computed from these without overflow.
    pub const MAX: HumanDuration = HumanDuration::secs(365 * 24 * 3600);

    /// `n` seconds.
    pub const fn secs(n: u64) -> Self {
        HumanDuration(Duration::from_secs(n))
    }
}

const SIZE_UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const TIME_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl FromStr for ByteSize {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        const HINT: &str = "write a whole number with B, KiB, MiB or GiB, such as 8KiB";
        let refuse = |what: &str| ValueError::new(format!("{} {what}", quoted(text))).with_hint(HINT);
        if text == "0" {
            return Ok(ByteSize(0));
        }
        let (number, unit, rest) = take_number(text).ok_or_else(|| refuse("is not a size"))?;
        if unit.is_empty() && rest.is_empty() {
            return Err(refuse("has no unit").with_hint(format!("write {text}B, or use KiB, MiB or GiB")));
        }
        let Some((_, factor)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit && rest.is_empty()) else {
            return Err(match binary_unit(unit).filter(|_| rest.is_empty()) {
                Some(unit) => refuse("is not a size").with_hint(format!("did you mean {number}{unit}?")),
                None => refuse("is not a size"),
            });
        };
        let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor));
        bytes.map(ByteSize).ok_or_else(|| refuse("is too large").with_hint("at most 2^64 - 1 bytes"))
    }
}

impl FromStr for HumanDuration {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        const HINT: &str = "write whole numbers with ms, s, m or h, such as 30s or 1m30s";
        let refuse = |what: &str| ValueError::new(format!("{} {what}", quoted(text))).with_hint(HINT);
        let too_long = || refuse("is too long").with_hint("at most 8760h, a year");
        if text == "0" {
            return Ok(HumanDuration::default());
        }
        let (mut total, mut left, mut largest) = (0u64, text, u64::MAX);
        while !left.is_empty() {
            let (number, unit, rest) = take_number(left).ok_or_else(|| refuse("is not a duration"))?;
            if unit.is_empty() {
                return Err(match rest.is_empty() && number == text {
                    true => refuse("has no unit").with_hint(format!("write {text}s, or use ms, m or h")),
                    false => refuse("is not a duration"),
                });
            }
            let factor = TIME_UNITS.iter().find(|(name, factor)| *name == unit && *factor < largest);
            let (_, factor) = factor.ok_or_else(|| match (unit, number.parse::<u64>()) {
                ("d", Ok(days)) if left == text && rest.is_empty() && days <= 365 => {
                    refuse("is not a duration").with_hint(format!("write {}h", days * 24))
                }
                _ => refuse("is not a duration"),
            })?;
            let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor));
            total = part.and_then(|part| total.checked_add(part)).ok_or_else(too_long)?;
            (left, largest) = (rest, *factor);
        }
        let duration = HumanDuration(Duration::from_millis(total));
        match text.is_empty() {
            true => Err(refuse("is not a duration")),
            false if duration > HumanDuration::MAX => Err(too_long()),
            false => Ok(duration),
        }
    }
}

/// Splits `12KiB34` into `12`, `KiB` and `34`.
fn take_number(text: &str) -> Option<(&str, &str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(letters);
    (!number.is_empty()).then_some((number, unit, rest))
}

/// The unit meant by another spelling (`k`, `MB`, `gib`).
fn binary_unit(unit: &str) -> Option<&'static str> {
    match unit.to_ascii_lowercase().as_str() {
        "b" => Some("B"),
        "k" | "kb" | "kib" => Some("KiB"),
        "m" | "mb" | "mib" => Some("MiB"),
        "g" | "gb" | "gib" => Some("GiB"),
        _ => None,
    }
}

fn write_shortest(f: &mut fmt::Formatter<'_>, value: u64, units: &[(&str, u64)]) -> fmt::Result {
    match units.iter().find(|(_, factor)| value != 0 && value.is_multiple_of(*factor)) {
        Some((unit, factor)) => write!(f, "{}{unit}", value / factor),
        None => f.write_str("0"),
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_shortest(f, self.0, &SIZE_UNITS)
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_shortest(f, u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), &TIME_UNITS)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::scalar(deserializer, "a size such as 8KiB", str::parse)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::scalar(deserializer, "a duration such as 30s", str::parse)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            0 => serializer.serialize_u64(0),
            _ => serializer.collect_str(self),
        }
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_millis() {
            0 => serializer.serialize_u64(0),
            _ => serializer.collect_str(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_comes_back_in_its_shortest_form() {
        for (written, bytes, shown) in
            [("0", 0, "0"), ("8KiB", 8192, "8KiB"), ("1024KiB", 1 << 20, "1MiB"), ("1500B", 1500, "1500B")]
        {
            let size: ByteSize = written.parse().unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, shown));
        }
        for (written, millis, shown) in
            [("0", 0, "0"), ("250ms", 250, "250ms"), ("1m30s", 90_000, "90s"), ("60m", 3_600_000, "1h")]
        {
            let duration: HumanDuration = written.parse().unwrap();
            assert_eq!((duration.0.as_millis(), duration.to_string().as_str()), (millis, shown));
        }
    }

    #[test]
    fn bare_numbers_other_units_and_overflow_are_refused() {
        for text in ["10", "8KB", "8kib", "1.5MiB", "", "-1B", "KiB", "1KiB2B", "8 KiB", "99999999999GiB"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
        for text in [
            "10",
            "1.5s",
            "",
            "s",
            "1s1m",
            "1s1s",
            "1s5",
            "5 s",
            "1d",
            "-1s",
            "8761h",
            "99999999999999999999s",
        ] {
            assert!(text.parse::<HumanDuration>().is_err(), "{text}");
        }
    }
}
