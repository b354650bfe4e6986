//! The time of a record as text, appended without formatting a second twice.
//!
//! Each thread remembers the text of the second it wrote last; only milliseconds are new. UTC only: a
//! log that changes its offset twice a year cannot be sorted.

use chrono::{DateTime, Datelike, Timelike, Utc};
use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&[u8]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

struct Second {
    second: u64,
    rfc3339: [u8; 19],
    apache: [u8; 26],
}

thread_local! {
    static SECOND: RefCell<Second> = RefCell::new(Second::of(0));
}

/// Appends `2026-01-31T12:00:00.000Z` (RFC 3339 §5.6). Times before 1970 come out as 1970.
pub(super) fn append_rfc3339(out: &mut Vec<u8>, time: SystemTime) {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    with_second(since.as_secs(), |second| out.extend_from_slice(&second.rfc3339));
    append_fraction(out, since.subsec_millis());
    out.push(b'Z');
}

/// Appends `31/Jan/2026:12:00:00 +0000`, as Apache writes it, without the brackets.
pub(super) fn append_apache(out: &mut Vec<u8>, time: SystemTime) {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    with_second(since.as_secs(), |second| out.extend_from_slice(&second.apache));
}

/// Appends `.` and three digits of `thousandths` (below 1,000).
pub(super) fn append_fraction(out: &mut Vec<u8>, thousandths: u32) {
    let digit = |by: u32| b'0' + (thousandths / by % 10) as u8;
    out.extend_from_slice(&[b'.', digit(100), digit(10), digit(1)]);
}

fn with_second(second: u64, write: impl FnOnce(&Second)) {
    SECOND.with_borrow_mut(|known| {
        if known.second != second {
            *known = Second::of(second);
        }
        write(known);
    });
}

impl Second {
    fn of(second: u64) -> Second {
        let time = DateTime::<Utc>::from_timestamp(i64::try_from(second).unwrap_or(i64::MAX), 0)
            .filter(|time| time.year() <= 9999)
            .unwrap_or(DateTime::<Utc>::UNIX_EPOCH);
        let pair = |out: &mut [u8], value: u32| {
            out.copy_from_slice(&[b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8]);
        };
        let year = time.year().unsigned_abs();
        let mut rfc3339 = *b"0000-00-00T00:00:00";
        pair(&mut rfc3339[0..2], year / 100);
        pair(&mut rfc3339[2..4], year);
        pair(&mut rfc3339[5..7], time.month());
        pair(&mut rfc3339[8..10], time.day());
        pair(&mut rfc3339[11..13], time.hour());
        pair(&mut rfc3339[14..16], time.minute());
        pair(&mut rfc3339[17..19], time.second());
        let mut apache = *b"00/Jan/0000:00:00:00 +0000";
        pair(&mut apache[0..2], time.day());
        apache[3..6].copy_from_slice(MONTHS[time.month0() as usize]);
        apache[7..11].copy_from_slice(&rfc3339[0..4]);
        apache[12..20].copy_from_slice(&rfc3339[11..19]);
        Second { second, rfc3339, apache }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn texts(time: SystemTime) -> (String, String) {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        append_rfc3339(&mut first, time);
        append_apache(&mut second, time);
        (String::from_utf8(first).unwrap(), String::from_utf8(second).unwrap())
    }

    #[test]
    fn a_known_instant() {
        let time = UNIX_EPOCH + Duration::from_millis(1_709_210_096_042);
        let expected = ("2024-02-29T12:34:56.042Z".into(), "29/Feb/2024:12:34:56 +0000".into());
        assert_eq!(texts(time), expected);
        assert_eq!(texts(time), expected);
    }

    #[test]
    fn impossible_clocks_do_not_panic() {
        assert_eq!(texts(UNIX_EPOCH - Duration::from_secs(5)).0, "1970-01-01T00:00:00.000Z");
        let far = UNIX_EPOCH + Duration::from_secs(400_000_000_000);
        assert_eq!(texts(far).0, "1970-01-01T00:00:00.000Z");
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_chrono(millis in 0u64..4_102_444_800_000) {
            let time = UNIX_EPOCH + Duration::from_millis(millis);
            let known = DateTime::<Utc>::from(time);
            let format = |pattern: &str| known.format(pattern).to_string();
            proptest::prop_assert_eq!(
                texts(time),
                (format("%Y-%m-%dT%H:%M:%S%.3fZ"), format("%d/%b/%Y:%H:%M:%S +0000"))
            );
        }
    }
}
