//! Header compression (RFC 7541): what cannot be decoded ends the connection, because every later
//! header block would be decoded wrongly too (RFC 9113 section 4.3).

use super::client::Client;
use super::client::code::COMPRESSION_ERROR;
use super::generic::{get_block, head};
use super::{Case, Outcome, case};
use crate::support::frames::END_STREAM;

pub const CASES: &[Case] = &[
    case("2.3.3/1: an indexed field beyond the tables", |c| undecodable(c, &[0xff, 0x80, 0x01])),
    case("2.3.3/2: an indexed name beyond the tables", |c| undecodable(c, b"\x7f\x80\x01\x05empty")),
    case("4.2/1: an update of the table's size behind a field", |c| undecodable(c, &[0x20])),
    case("5.2/1: a coded string padded with more than 7 bits", |c| {
        // `foo` in 20 bits, then a byte and a half of ones.
        undecodable(c, b"\x00\x04test\x84\x94\xe7\xff\xff")
    }),
    case("5.2/2: a coded string padded with zeros", |c| undecodable(c, b"\x00\x04test\x83\x94\xe7\x00")),
    case("5.2/3: a coded string with the end-of-string symbol", |c| {
        // `foo`, then 30 ones, then the rest of a byte.
        undecodable(c, b"\x00\x04test\x87\x94\xe7\xff\xff\xff\xff\xff")
    }),
    case("6.1/1: an indexed field with the index 0", |c| undecodable(c, &[0x80])),
    case("6.3/1: a table larger than was allowed", |c| {
        // 4097, one above the size that holds without a setting.
        c.send(head(1, END_STREAM, &[&[0x3f, 0xe2, 0x1f][..], &get_block()].concat()))
            .ends_unspecifically(COMPRESSION_ERROR)
    }),
];

/// A `GET` that ends with these bytes.
fn undecodable(client: &mut Client, bytes: &[u8]) -> Outcome {
    client
        .send(head(1, END_STREAM, &[&get_block()[..], bytes].concat()))
        .ends_unspecifically(COMPRESSION_ERROR)
}
