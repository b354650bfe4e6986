//! The request target: one canonical form, in which nobody behind the gateway finds anything that
//! routing and access rules have not seen.

use http::Method;
use portcullis::proxy::request_target::{TargetRules, canonical_path, split_target};

/// Panics when an invariant does not hold for these bytes as a request target.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for method in [Method::GET, Method::OPTIONS, Method::CONNECT] {
        let Ok(target) = split_target(&method, text) else { continue };
        assert!(target.path.starts_with('/') || target.path == "*", "{target:?}");
        assert!(!target.path.contains(['?', '#']), "{target:?}");
        assert!(target.authority.is_none_or(|authority| !authority.contains(['/', '?', '#'])), "{target:?}");
        for decode_slashes in [false, true] {
            for merge_slashes in [false, true] {
                check_path(target.path, &TargetRules { merge_slashes, decode_slashes });
            }
        }
    }
}

fn check_path(raw: &str, rules: &TargetRules) {
    let Ok(path) = canonical_path(raw, rules) else { return };
    let again = canonical_path(&path, rules).expect("a canonical path is acceptable");
    assert_eq!(again, path, "not idempotent under {rules:?}");
    if path == "*" {
        return;
    }
    assert!(path.starts_with('/'), "{path:?}");
    assert!(
        path.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"#<>?\\^`{|}".contains(&byte)),
        "{path:?}"
    );
    assert!(!rules.merge_slashes || !path.contains("//"), "{path:?}");
    assert!(!rules.decode_slashes || !path.contains("%2F"), "{path:?}");
    for escape in path.split('%').skip(1) {
        let digits = escape.get(..2).expect("two digits");
        let byte = u8::from_str_radix(digits, 16).expect("hexadecimal digits");
        assert!(!digits.bytes().any(|digit| digit.is_ascii_lowercase()), "{path:?}");
        assert!(byte != 0 && !byte.is_ascii_alphanumeric() && !b"-._~".contains(&byte), "{path:?}");
    }
    let lenient = path.replace("%2F", "/").replace("%5C", "/").replace("%3B", ";");
    for segment in lenient.split('/') {
        let name = segment.split(';').next().unwrap_or_default();
        assert!(!matches!(name, "." | ".."), "{path:?} has a dot segment for a lenient reader");
    }
}
