//! The PROXY protocol's header: however the bytes arrive, the answer is the same.

use portcullis::edge::proxy_header::{MAX, Parsed, is_header, parse};

/// Panics when an invariant does not hold for a connection that begins with these bytes.
pub fn check(data: &[u8]) {
    let whole = parse(data);
    let bound = data.len().min(MAX);
    assert!(data.len() < MAX || whole != Ok(Parsed::Incomplete), "more than MAX bytes are waited for");
    let mut settled = None;
    for cut in cuts(bound) {
        let so_far = parse(&data[..cut]);
        match settled {
            None if so_far == Ok(Parsed::Incomplete) => {}
            None => settled = Some(so_far),
            Some(earlier) => assert_eq!(so_far, earlier, "more bytes changed a verdict"),
        }
    }
    assert_eq!(settled.unwrap_or(Ok(Parsed::Incomplete)), whole, "bytes behind a header count");
    match whole {
        Ok(Parsed::Absent) => assert_eq!(is_header(data), Some(false)),
        Ok(Parsed::Incomplete) => assert_ne!(is_header(data), Some(false)),
        Err(_) => assert_eq!(is_header(data), Some(true)),
        Ok(Parsed::Header(header)) => {
            assert_eq!(is_header(data), Some(true));
            assert!(header.length <= bound, "longer than what was looked at");
            if let Some(source) = header.source {
                assert_eq!(source.ip(), source.ip().to_canonical(), "an IPv4-mapped source");
            }
        }
    }
}

/// Every length near the signatures, the fixed parts and the end, and some between.
fn cuts(length: usize) -> impl Iterator<Item = usize> {
    (0..=length).filter(move |cut| *cut < 300 || cut % 61 == 0 || length - cut < 3)
}
