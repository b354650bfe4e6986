//! The head of a response (RFC 9112 section 4), read from the bytes of its connection.
//!
//! The bytes of a head are copied once, and its values are parts of that copy.

use bytes::Bytes;
use http::{Version, header};
use httparse::{Header, ParserConfig, Status};
use pingora::http::{IntoCaseHeaderName, ResponseHeader, header_value_from_raw};
use pingora::{Error, ErrorType, OrErr, Result};
use std::mem::MaybeUninit;

/// Fields a head may have.
const FIELDS: usize = 256;

/// Bytes a head may have.
pub const LIMIT: usize = 1 << 20;

/// A head that was read.
#[derive(Debug)]
pub struct Read {
    /// The head itself, without a Content-Length that a Transfer-Encoding overrides.
    pub head: Box<ResponseHeader>,
    /// What Content-Length says.
    pub length: Option<u64>,
    /// Its bytes on the wire.
    pub taken: usize,
}

/// Reads the head at the start of `bytes`. `None`: its end has not come yet.
///
/// Blanks between name and colon are dropped, and a value that goes on in another line is joined (RFC 9112
/// sections 5.1 and 5.2).
///
/// # Errors
/// `InvalidHTTPHeader` when it is none, or says more than one length.
pub fn read(bytes: &[u8]) -> Result<Option<Read>> {
    let mut fields = [const { MaybeUninit::<Header>::uninit() }; FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let mut parser = ParserConfig::default();
    parser.allow_spaces_after_header_name_in_responses(true);
    parser.allow_obsolete_multiline_headers_in_responses(true);
    let parsed = parser.parse_response_with_uninit_headers(&mut response, bytes, &mut fields);
    match parsed.or_err_with(ErrorType::InvalidHTTPHeader, || shown(bytes))? {
        Status::Partial if bytes.len() > LIMIT => {
            Error::e_explain(ErrorType::InvalidHTTPHeader, "a response head that is too large")
        }
        Status::Partial => Ok(None),
        Status::Complete(taken) => build(&response, bytes, taken).map(Some),
    }
}

fn build(response: &httparse::Response, bytes: &[u8], taken: usize) -> Result<Read> {
    let own = Bytes::copy_from_slice(bytes.get(..taken).unwrap_or_default());
    // Where in the copy is what was found in the original?
    let part = |found: &[u8]| {
        let start = (found.as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize);
        match start.checked_add(found.len()) {
            Some(end) if end <= own.len() => own.slice(start..end),
            // An empty value may stand anywhere.
            _ => Bytes::copy_from_slice(found),
        }
    };
    let mut head =
        Box::new(ResponseHeader::build(response.code.unwrap_or_default(), Some(response.headers.len()))?);
    head.set_version(if response.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 });
    head.set_reason_phrase(response.reason)?;
    for field in response.headers.iter().filter(|field| !field.name.is_empty()) {
        let name = part(field.name.as_bytes()).into_case_header_name();
        head.append_header(name, header_value_from_raw(part(field.value)))?;
    }
    if head.headers.contains_key(header::TRANSFER_ENCODING) {
        // RFC 9112 section 6.3.
        head.remove_header(&header::CONTENT_LENGTH);
    }
    let length = length(&head)?;
    Ok(Read { head, length, taken })
}

/// What Content-Length says, whatever number of times it says the same (RFC 9110 section 8.6).
fn length(head: &ResponseHeader) -> Result<Option<u64>> {
    let mut said = None;
    for line in head.headers.get_all(header::CONTENT_LENGTH) {
        for value in line.as_bytes().split(|byte| *byte == b',') {
            let number = number(value.trim_ascii());
            if number.is_none() || said.is_some_and(|said| Some(said) != number) {
                return Error::e_explain(ErrorType::InvalidHTTPHeader, "a Content-Length that is none");
            }
            said = number;
        }
    }
    Ok(said)
}

fn number(digits: &[u8]) -> Option<u64> {
    let all = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number = all.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten();
    // Nobody has so much, and sums with it must not run over.
    number.filter(|number| *number <= i64::MAX as u64)
}

/// The start of what is no head, for the process log.
fn shown(bytes: &[u8]) -> String {
    bytes.get(..bytes.len().min(256)).unwrap_or_default().escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_when_all_of_it_is_there() {
        let bytes = b"HTTP/1.1 200 Fine\r\nX-A: b\r\nx-a:  c \r\nContent-Length: 3\r\n\r\nabc";
        for cut in 0..bytes.len() - 3 {
            assert!(read(&bytes[..cut]).expect("no fault").is_none(), "{cut}");
        }
        let read = read(bytes).expect("a head").expect("all of it");
        assert_eq!((read.taken, read.length), (bytes.len() - 3, Some(3)));
        assert_eq!(read.head.get_reason_phrase(), Some("Fine"));
        let values: Vec<_> = read.head.headers.get_all("x-a").iter().map(|value| value.as_bytes()).collect();
        assert_eq!(values, [b"b", b"c"]);
    }

    #[test]
    fn a_folded_value_becomes_one_line() {
        let read =
            read(b"HTTP/1.1 200 OK\r\nX-A: b\r\n  \tc\r\nX-B :\r\n\r\n").expect("a head").expect("whole");
        assert_eq!(read.head.headers["x-a"], "b c");
        assert_eq!(read.head.headers["x-b"], "");
    }

    #[test]
    fn one_length_is_said_or_none() {
        let length = |fields: &str| {
            let bytes = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            read(bytes.as_bytes())
                .map(|read| read.expect("whole").length)
                .map_err(|error| error.etype().clone())
        };
        assert_eq!(length(""), Ok(None));
        assert_eq!(length("Content-Length: 3\r\ncontent-length: 3, 3\r\n"), Ok(Some(3)));
        assert_eq!(length("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"), Ok(None));
        for wrong in ["3, 4", "-3", "+3", "3x", "", "99999999999999999999"] {
            let wrong = length(&format!("Content-Length: {wrong}\r\n"));
            assert_eq!(wrong, Err(ErrorType::InvalidHTTPHeader));
        }
    }

    #[test]
    fn what_is_no_head_is_refused() {
        for wrong in
            [&b"GET / HTTP/1.1\r\n\r\n"[..], b"HTTP/1.1 2000 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\na b\r\n\r\n"]
        {
            assert!(read(wrong).is_err(), "{:?}", wrong.escape_ascii().to_string());
        }
        assert!(read(&[b"HTTP/1.1 200 OK\r\nX: ", &vec![b'x'; LIMIT][..]].concat()).is_err());
    }
}
