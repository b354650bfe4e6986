//! The body of a response (RFC 9112 section 6), taken from the bytes of its connection.

use super::chunks::{Chunks, Fault, NOT_ITS_END};
use bytes::Bytes;
use http::{Method, StatusCode, Version};
use pingora::http::ResponseHeader;

/// Most bytes of extensions and trailers between two pieces of data.
const FRAMING: usize = 64 * 1024;

/// A body, as far as it has come.
#[derive(Debug, PartialEq, Eq)]
pub enum ResponseBody {
    /// Of so many bytes more.
    Length(u64),
    /// In chunks.
    Chunked {
        /// As far as it was followed.
        chunks: Chunks,
        /// Bytes since the last of its data: what stands there is of use to nobody.
        between: usize,
    },
    /// Until the connection is closed.
    UntilClose,
}

/// What was taken of a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its data, without the framing.
    pub data: Bytes,
    /// How many of the bytes given belong to the body.
    pub taken: usize,
}

impl ResponseBody {
    /// One in chunks, from its start.
    const CHUNKED: ResponseBody = ResponseBody::Chunked { chunks: Chunks::START, between: 0 };

    /// The body behind `head`, which answers `method`; `length` is what its Content-Length says (RFC 9112 section
    /// 6.3).
    pub fn of(head: &ResponseHeader, length: Option<u64>, method: &Method) -> ResponseBody {
        let none = *method == Method::HEAD
            || head.status.is_informational()
            || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if none {
            ResponseBody::Length(0)
        } else if is_chunked(head) {
            ResponseBody::CHUNKED
        } else {
            length.map_or(ResponseBody::UntilClose, ResponseBody::Length)
        }
    }

    /// Whether all of it has come. One that ends with its connection never says so.
    pub fn has_ended(&self) -> bool {
        matches!(self, ResponseBody::Length(0) | ResponseBody::Chunked { chunks: Chunks::Done, .. })
    }

    /// Takes what `bytes` hold of the body.
    ///
    /// # Errors
    /// When the framing is broken.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Piece, Fault> {
        match self {
            ResponseBody::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= taken as u64;
                Ok(whole(bytes, taken))
            }
            ResponseBody::Chunked { chunks, between } => take_chunks(chunks, between, bytes),
            ResponseBody::UntilClose => Ok(whole(bytes, bytes.len())),
        }
    }
}

fn whole(bytes: &[u8], taken: usize) -> Piece {
    Piece { data: Bytes::copy_from_slice(bytes.get(..taken).unwrap_or_default()), taken }
}

/// Data of more than one chunk becomes one piece. What is sound before a fault is taken; the fault is found again.
fn take_chunks(chunks: &mut Chunks, between: &mut usize, bytes: &[u8]) -> Result<Piece, Fault> {
    let mut data = Vec::new();
    let mut rest = bytes;
    // Before the last chunk: the state, how much data there was, and what followed.
    let mut last = (*chunks, 0, bytes);
    while !rest.is_empty() && *chunks != Chunks::Done {
        let before = (*chunks, data.len(), rest);
        let framing = match chunks.framing(rest) {
            Ok(framing) => framing,
            Err(fault) => {
                // A chunk whose end is not where it says may have another length.
                let sound = if fault == NOT_ITS_END { last } else { before };
                if sound.1 == 0 {
                    return Err(fault);
                }
                *chunks = sound.0;
                data.truncate(sound.1);
                rest = sound.2;
                break;
            }
        };
        *between += framing;
        if *between > FRAMING {
            return Err("chunk_framing");
        }
        let (_, after) = rest.split_at_checked(framing).unwrap_or((rest, &[]));
        last = (*chunks, data.len(), after);
        let (piece, after) = after.split_at_checked(chunks.data(after.len())).unwrap_or((after, &[]));
        if !piece.is_empty() {
            *between = 0;
            data.extend_from_slice(piece);
        }
        rest = after;
    }
    Ok(Piece { data: Bytes::from(data), taken: bytes.len() - rest.len() })
}

/// Whether `chunked` is the last coding (RFC 9112 section 6.3). Whether it is the only one, and may be said at
/// all, is for whoever passes the head on.
fn is_chunked(head: &ResponseHeader) -> bool {
    let last = head.headers.get_all(http::header::TRANSFER_ENCODING).iter().next_back();
    last.is_some_and(|line| {
        let coding = line.as_bytes().rsplit(|byte| *byte == b',').next().unwrap_or_default();
        coding.trim_ascii().eq_ignore_ascii_case(b"chunked")
    })
}

/// Whether another request may follow on the connection, by what `head` says (RFC 9112 section 9.3).
pub fn keeps_connection(head: &ResponseHeader) -> bool {
    let mut kept = head.version == Version::HTTP_11;
    for line in head.headers.get_all(http::header::CONNECTION) {
        for word in line.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if word.eq_ignore_ascii_case(b"close") {
                return false;
            }
            kept |= word.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    // RFC 9112 section 6.1: where a coding in HTTP/1.0 ends is not certain.
    kept && (head.version == Version::HTTP_11 || !head.headers.contains_key(http::header::TRANSFER_ENCODING))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(status: u16, version: Version, fields: &[(&'static str, &'static str)]) -> ResponseHeader {
        let mut head = ResponseHeader::build(status, None).expect("a head");
        head.set_version(version);
        for (name, value) in fields {
            head.append_header(*name, *value).expect("a field");
        }
        head
    }

    /// The data, and how much of `bytes` was taken, cut at every place.
    fn outcome(start: impl Fn() -> ResponseBody, bytes: &[u8]) -> Result<(Vec<u8>, usize, bool), Fault> {
        let read = |pieces: &[&[u8]]| {
            let (mut body, mut data, mut taken) = (start(), Vec::new(), 0);
            for piece in pieces {
                let mut rest = *piece;
                while !rest.is_empty() {
                    let came = body.take(rest)?;
                    data.extend_from_slice(&came.data);
                    taken += came.taken;
                    rest = &rest[came.taken..];
                    if body.has_ended() {
                        break;
                    }
                }
            }
            Ok((data, taken, body.has_ended()))
        };
        let whole = read(&[bytes]);
        for cut in 0..bytes.len() {
            let (front, back) = bytes.split_at(cut);
            assert_eq!(read(&[front, back]), whole, "{:?}", bytes.escape_ascii().to_string());
        }
        whole
    }

    #[test]
    fn a_body_ends_where_its_framing_says() {
        let length = || ResponseBody::Length(3);
        assert_eq!(outcome(length, b"abcHTTP"), Ok((b"abc".to_vec(), 3, true)));
        assert_eq!(outcome(length, b"ab"), Ok((b"ab".to_vec(), 2, false)));
        let chunked = || ResponseBody::CHUNKED;
        let body = b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nx: y\r\n\r\nHTTP";
        assert_eq!(outcome(chunked, body), Ok((b"abcde".to_vec(), body.len() - 4, true)));
        assert_eq!(outcome(chunked, b"3\r\nabc\r\n"), Ok((b"abc".to_vec(), 8, false)));
        assert_eq!(outcome(chunked, b"3\r\nabcd"), Err("chunk_end"));
        let mut whole = chunked();
        let good = whole.take(b"3\r\nabc\r\nxx").expect("what is good of it");
        assert_eq!((&good.data[..], good.taken), (&b"abc"[..], 6));
        assert_eq!(whole.take(b"\r\nxx"), Err("chunk_size"));
        let mut longer = chunked();
        let good = longer.take(b"3\r\nabc\r\n1\r\nde\r\n").expect("what is sound of it");
        assert_eq!((&good.data[..], good.taken), (&b"abc"[..], 11));
        assert_eq!(longer.take(b"de\r\n"), Err("chunk_end"));
        let endless = [b"0\r\nx: ", &vec![b'x'; FRAMING][..]].concat();
        assert_eq!(chunked().take(&endless), Err("chunk_framing"));
        assert_eq!(outcome(|| ResponseBody::UntilClose, b"abc"), Ok((b"abc".to_vec(), 3, false)));
    }

    #[test]
    fn the_head_says_how_its_body_is_framed() {
        let of = |status, fields: &[(&'static str, &'static str)], length, method: Method| {
            ResponseBody::of(&head(status, Version::HTTP_11, fields), length, &method)
        };
        let chunked = ResponseBody::CHUNKED;
        assert_eq!(of(200, &[("transfer-encoding", "chunked")], None, Method::GET), chunked);
        assert_eq!(of(200, &[("transfer-encoding", "gzip, Chunked")], None, Method::GET), chunked);
        assert_eq!(of(200, &[("transfer-encoding", "gzip")], None, Method::GET), ResponseBody::UntilClose);
        assert_eq!(of(200, &[], Some(4), Method::GET), ResponseBody::Length(4));
        assert_eq!(of(200, &[], None, Method::GET), ResponseBody::UntilClose);
        for (status, method) in [(204, Method::GET), (304, Method::GET), (200, Method::HEAD)] {
            assert_eq!(of(status, &[], Some(4), method), ResponseBody::Length(0));
        }
    }

    #[test]
    fn a_connection_is_kept_when_every_line_allows_it() {
        let keeps =
            |version, fields: &[(&'static str, &'static str)]| keeps_connection(&head(200, version, fields));
        assert!(keeps(Version::HTTP_11, &[]));
        assert!(!keeps(Version::HTTP_11, &[("connection", "keep-alive"), ("connection", "x, Close")]));
        assert!(!keeps(Version::HTTP_10, &[]));
        assert!(keeps(Version::HTTP_10, &[("connection", "Keep-Alive")]));
        let coded = [("connection", "keep-alive"), ("transfer-encoding", "chunked")];
        assert!(!keeps(Version::HTTP_10, &coded));
    }
}
