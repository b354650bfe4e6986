//! Text from strangers, made safe for one line of a log.
//!
//! Line breaks, control characters and the characters that change the direction of text are escaped in
//! every style, so that nobody can forge a line, move a terminal's cursor or make a line read otherwise
//! than it is. Input need not be UTF-8. Does not know what the text means.

use std::fmt::{self, Write};

/// Where the text will stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Inside a JSON string (RFC 8259 §7): `\u001b`, `\"`; a byte that is no UTF-8 becomes U+FFFD.
    Json,
    /// Inside quotes of a text line: `\x1b`, `\"`, `\\`; a byte that is no UTF-8 becomes `\xff`.
    Quoted,
    /// In running text: as `Quoted`, but quotes and backslashes stay as they are.
    Plain,
}

/// How a byte below 0x80 is written: as it is, or escaped in these styles.
const CLEAN: u8 = 0;
const QUOTE: u8 = 1;
const ALWAYS: u8 = 2;

static CLASS: [u8; 256] = {
    let mut class = [CLEAN; 256];
    let mut byte = 0;
    while byte < 256 {
        if byte < 0x20 || byte >= 0x7f {
            class[byte] = ALWAYS;
        }
        byte += 1;
    }
    class[b'"' as usize] = QUOTE;
    class[b'\\' as usize] = QUOTE;
    class
};

/// Appends `text`, escaped for `style`.
pub(super) fn append(out: &mut Vec<u8>, text: &[u8], style: Style) {
    let least = if style == Style::Plain { ALWAYS } else { QUOTE };
    let mut rest = text;
    while let Some(clean) = rest.iter().position(|byte| CLASS[usize::from(*byte)] >= least) {
        let (before, from) = rest.split_at(clean);
        out.extend_from_slice(before);
        rest = match from {
            [byte, after @ ..] if byte.is_ascii() => {
                append_ascii(out, *byte, style);
                after
            }
            _ => {
                let end = from.iter().position(u8::is_ascii).unwrap_or(from.len());
                let (foreign, after) = from.split_at(end);
                append_foreign(out, foreign, style);
                after
            }
        };
    }
    out.extend_from_slice(rest);
}

/// The two characters `\` and `letter`, where the style has such a short form.
fn append_ascii(out: &mut Vec<u8>, byte: u8, style: Style) {
    let letter = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        _ => {
            let prefix: &[u8] = if style == Style::Json { b"\\u00" } else { b"\\x" };
            out.extend_from_slice(prefix);
            append_hex(out, u32::from(byte), 2);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', letter]);
}

fn append_foreign(out: &mut Vec<u8>, bytes: &[u8], style: Style) {
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_deceptive(character) {
                out.extend_from_slice(b"\\u");
                append_hex(out, u32::from(character), 4);
            } else {
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        match style {
            Style::Json if !chunk.invalid().is_empty() => out.extend_from_slice(b"\\ufffd"),
            Style::Json => {}
            Style::Quoted | Style::Plain => {
                for byte in chunk.invalid() {
                    out.extend_from_slice(b"\\x");
                    append_hex(out, u32::from(*byte), 2);
                }
            }
        }
    }
}

/// C1 controls, line and paragraph separators, and bidirectional formatting (Unicode UAX #9 §2). All of
/// them have at most four hexadecimal digits.
fn is_deceptive(character: char) -> bool {
    matches!(character,
        '\u{80}'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}')
}

fn append_hex(out: &mut Vec<u8>, value: u32, digits: u32) {
    for place in (0..digits).rev() {
        out.push(b"0123456789abcdef"[(value >> (4 * place)) as usize & 0xf]);
    }
}

/// Lets formatted text (`write!`) through [`append`], for what is not on the request path.
pub(super) struct Escaped<'a>(pub &'a mut Vec<u8>, pub Style);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        append(self.0, text.as_bytes(), self.1);
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn escaped(text: &[u8], style: Style) -> String {
        let mut out = Vec::new();
        append(&mut out, text, style);
        String::from_utf8(out).unwrap()
    }

    /// What no line of any log may contain.
    pub(crate) fn is_safe(line: &str) -> bool {
        !line.chars().any(|character| character.is_control() || is_deceptive(character))
    }

    #[test]
    fn harmless_text_is_kept() {
        for style in [Style::Json, Style::Quoted, Style::Plain] {
            assert_eq!(escaped("a b/ü€😀?x=%0a".as_bytes(), style), "a b/ü€😀?x=%0a");
        }
    }

    #[test]
    fn line_breaks_controls_and_direction_are_escaped() {
        let hostile = "a\r\n\t\x1b[2J\x7f\u{85}\u{2028}\u{202e}\u{2066}\u{61c}\u{200f}".as_bytes();
        let tail = r"\u0085\u2028\u202e\u2066\u061c\u200f";
        assert_eq!(escaped(hostile, Style::Json), format!(r"a\r\n\t\u001b[2J\u007f{tail}"));
        assert_eq!(escaped(hostile, Style::Quoted), format!(r"a\r\n\t\x1b[2J\x7f{tail}"));
        assert_eq!(escaped(hostile, Style::Plain), format!(r"a\r\n\t\x1b[2J\x7f{tail}"));
    }

    #[test]
    fn quotes_are_escaped_where_they_would_end_the_value() {
        assert_eq!(escaped(br#"a"\b"#, Style::Json), r#"a\"\\b"#);
        assert_eq!(escaped(br#"a"\b"#, Style::Quoted), r#"a\"\\b"#);
        assert_eq!(escaped(br#"a"\b"#, Style::Plain), r#"a"\b"#);
    }

    #[test]
    fn bytes_that_are_no_utf8_are_shown() {
        assert_eq!(escaped(b"a\xff\xc3b\xe2\x80", Style::Quoted), r"a\xff\xc3b\xe2\x80");
        assert_eq!(escaped(b"a\xff\xc3b", Style::Json), r"a\ufffd\ufffdb");
    }

    proptest::proptest! {
        #[test]
        fn every_line_is_safe_and_json_reads_back(text in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
            for style in [Style::Quoted, Style::Plain] {
                proptest::prop_assert!(is_safe(&escaped(&text, style)));
            }
            let json = escaped(&text, Style::Json);
            proptest::prop_assert!(is_safe(&json));
            let read: String = serde_json::from_str(&format!("\"{json}\"")).unwrap();
            proptest::prop_assert_eq!(read, String::from_utf8_lossy(&text));
        }
    }
}
