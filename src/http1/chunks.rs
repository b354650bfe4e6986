//! A chunked body (RFC 9112 section 7.1), followed byte by byte but for its data.
//!
//! The engine reads it too. It takes an empty size for the last chunk, and any byte in an extension,
//! line feeds included; an upstream or a proxy before us that does not agree would see other requests.
//! What is followed here is the grammar, where the body ends, and nothing else: no byte is kept.

/// What is wrong with a body.
pub type Fault = &'static str;

/// The data of a chunk does not end where its size says.
pub const NOT_ITS_END: Fault = "chunk_end";

/// Where in the body the next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chunks {
    /// In a size, of which so many digits were read.
    Size { digits: u8, size: u64 },
    /// In an extension, or the white space before it.
    Extension { size: u64 },
    /// Behind the carriage return that ends the line of a size.
    SizeEnd { size: u64 },
    /// In data, of which so much is to come.
    Data { left: u64 },
    /// Behind the data.
    DataReturn,
    /// Behind the carriage return behind the data.
    DataEnd,
    /// At the start of a trailer line, or of the empty one that ends the body.
    Trailers,
    /// In a trailer.
    Trailer,
    /// Behind the carriage return that ends a trailer.
    TrailerEnd,
    /// Behind the last carriage return.
    LastEnd,
    /// Behind the body.
    Done,
}

impl Chunks {
    /// The start of a body.
    pub const START: Chunks = Chunks::Size { digits: 0, size: 0 };

    /// Follows the body through `bytes`; how many of them belong to it: all, unless it ends among them.
    ///
    /// # Errors
    /// The body breaks the grammar.
    pub fn follow(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let mut rest = bytes;
        while !rest.is_empty() && *self != Chunks::Done {
            let data = self.data(rest.len());
            rest = rest.get(data..).unwrap_or_default();
            let framing = self.framing(rest)?;
            rest = rest.get(framing..).unwrap_or_default();
        }
        Ok(bytes.len() - rest.len())
    }

    /// How many of the `length` bytes that come next are data; they are followed.
    pub fn data(&mut self, length: usize) -> usize {
        let Chunks::Data { left } = *self else { return 0 };
        let here = left.min(length as u64);
        *self = if here == left { Chunks::DataReturn } else { Chunks::Data { left: left - here } };
        // No more than the length of what is there.
        here as usize
    }

    /// Follows the framing through `bytes`, to the next data or the end of the body; how many bytes that are.
    ///
    /// # Errors
    /// The body breaks the grammar.
    pub fn framing(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        for (at, byte) in bytes.iter().enumerate() {
            if matches!(self, Chunks::Data { .. } | Chunks::Done) {
                return Ok(at);
            }
            *self = self.next(*byte)?;
        }
        Ok(bytes.len())
    }

    fn next(self, byte: u8) -> Result<Chunks, Fault> {
        Ok(match (self, byte) {
            (Chunks::Size { digits, size }, byte) => return after_size(digits, size, byte),
            (Chunks::Extension { size }, b'\r') => Chunks::SizeEnd { size },
            (Chunks::Extension { size }, byte) if is_text(byte) => Chunks::Extension { size },
            (Chunks::Extension { .. }, _) => return Err("chunk_extension"),
            (Chunks::SizeEnd { size: 0 }, b'\n') => Chunks::Trailers,
            (Chunks::SizeEnd { size }, b'\n') => Chunks::Data { left: size },
            (Chunks::SizeEnd { .. }, _) => return Err("chunk_size"),
            (Chunks::DataReturn, b'\r') => Chunks::DataEnd,
            (Chunks::DataEnd, b'\n') => Chunks::START,
            (Chunks::Data { .. } | Chunks::DataReturn | Chunks::DataEnd, _) => return Err(NOT_ITS_END),
            (Chunks::Trailers, b'\r') => Chunks::LastEnd,
            (Chunks::Trailer, b'\r') => Chunks::TrailerEnd,
            (Chunks::Trailers | Chunks::Trailer, byte) if is_text(byte) => Chunks::Trailer,
            (Chunks::TrailerEnd, b'\n') => Chunks::Trailers,
            (Chunks::LastEnd | Chunks::Done, b'\n') => Chunks::Done,
            _ => return Err("trailer"),
        })
    }
}

fn after_size(digits: u8, size: u64, byte: u8) -> Result<Chunks, Fault> {
    match byte {
        b'\r' if digits > 0 => Ok(Chunks::SizeEnd { size }),
        b';' | b' ' | b'\t' if digits > 0 => Ok(Chunks::Extension { size }),
        byte => match char::from(byte).to_digit(16) {
            Some(digit) if digits < 16 => {
                Ok(Chunks::Size { digits: digits + 1, size: size << 4 | u64::from(digit) })
            }
            _ => Err("chunk_size"),
        },
    }
}

/// What may stand in a line: everything but controls, which somebody may take for its end.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7F)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the body ends, in one piece and cut at every place.
    fn outcome(body: &[u8]) -> Result<(usize, bool), Fault> {
        let follow = |pieces: &[&[u8]]| {
            let (mut chunks, mut taken) = (Chunks::START, 0);
            for piece in pieces {
                taken += chunks.follow(piece)?;
            }
            Ok((taken, chunks == Chunks::Done))
        };
        let whole = follow(&[body]);
        for cut in 0..body.len() {
            assert_eq!(follow(&[&body[..cut], &body[cut..]]), whole, "{:?}", body.escape_ascii().to_string());
        }
        whole
    }

    #[test]
    fn a_body_ends_where_it_says_and_not_earlier() {
        for body in [
            &b"0\r\n\r\n"[..],
            b"5\r\nhello\r\n0\r\n\r\n",
            b"5;a=\"b\";c\r\nhello\r\n00 ;x\r\n\r\n",
            b"A\r\n0\r\n\r\n56789\r\n1\r\nx\r\n0\r\nX-A: b\r\nX-B: c\r\n\r\n",
            b"0000000000000001\r\nx\r\n0\r\n\r\n",
        ] {
            assert_eq!(outcome(body), Ok((body.len(), true)));
            assert_eq!(outcome(&[body, b"GET / HTTP/1.1"].concat()), Ok((body.len(), true)));
            let cut = &body[..body.len() - 1];
            assert_eq!(outcome(cut), Ok((cut.len(), false)));
        }
    }

    #[test]
    fn a_body_that_can_be_read_two_ways_is_a_fault() {
        for (body, fault) in [
            (&b"\r\nhello\r\n0\r\n\r\n"[..], "chunk_size"),
            (b";x\r\n\r\n", "chunk_size"),
            (b"5\nhello\r\n0\r\n\r\n", "chunk_size"),
            (b"5\r\rhello", "chunk_size"),
            (b"0x5\r\nhello", "chunk_size"),
            (b"-1\r\n", "chunk_size"),
            (b"00000000000000001\r\nx", "chunk_size"),
            (b"5;\nxx\r\n4c\r\n", "chunk_extension"),
            (b"5;a\rb\r\nhello", "chunk_size"),
            (b"5;a\0b\r\nhello", "chunk_extension"),
            (b"5 \nhello", "chunk_extension"),
            (b"5\r\nhello\n0\r\n\r\n", "chunk_end"),
            (b"5\r\nhello!\r\n", "chunk_end"),
            (b"5\r\nhello\r0\r\n", "chunk_end"),
            (b"0\r\n\n", "trailer"),
            (b"0\r\nX-A: b\nX-B: c\r\n\r\n", "trailer"),
            (b"0\r\nX-A: b\rc\r\n\r\n", "trailer"),
            (b"0\r\n\rx", "trailer"),
        ] {
            assert_eq!(outcome(body), Err(fault), "{:?}", body.escape_ascii().to_string());
        }
    }
}
