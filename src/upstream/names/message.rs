//! DNS messages (RFC 1035 section 4): one question, and the addresses that answer it.
//!
//! Reads what anybody may have sent: every length is checked, and no compression pointer is followed,
//! because no name in an answer matters. Knows nothing of sockets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most addresses taken from one answer.
pub(super) const MAX_ADDRESSES: usize = 64;

const HEADER: usize = 12;
const CLASS_IN: u16 = 1;
/// Longest name on the wire (section 2.3.4).
const MAX_NAME: usize = 255;

/// Which addresses are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// A records.
    V4,
    /// AAAA records (RFC 3596).
    V6,
}

/// A question, as sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    family: Family,
    message: Vec<u8>,
}

/// What a server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    /// 0 = no error, 2 = server failure, 3 = no such name.
    pub(super) code: u8,
    /// There is more than fits: ask again over TCP.
    pub(super) truncated: bool,
    /// At most [`MAX_ADDRESSES`].
    pub(super) addresses: Vec<IpAddr>,
    /// Seconds all of the answer holds; 0 when there is none.
    pub(super) ttl: u32,
}

impl Family {
    fn kind(self) -> u16 {
        match self {
            Family::V4 => 1,
            Family::V6 => 28,
        }
    }
}

impl Question {
    /// Asks for the addresses of `name`; `None` when it is no name.
    pub(super) fn new(id: u16, name: &str, family: Family) -> Option<Question> {
        let mut message = Vec::with_capacity(HEADER + name.len() + 6);
        message.extend_from_slice(&id.to_be_bytes());
        // Recursion desired; one question.
        message.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        for label in name.strip_suffix('.').unwrap_or(name).split('.') {
            let length = u8::try_from(label.len()).ok().filter(|length| (1..=63).contains(length))?;
            message.push(length);
            message.extend_from_slice(label.as_bytes());
        }
        message.push(0);
        if message.len() - HEADER > MAX_NAME {
            return None;
        }
        message.extend_from_slice(&family.kind().to_be_bytes());
        message.extend_from_slice(&CLASS_IN.to_be_bytes());
        Some(Question { family, message })
    }

    /// As it goes on the wire.
    pub(super) fn message(&self) -> &[u8] {
        &self.message
    }

    /// The reply in `message`; `None` when it is none, or answers another question.
    pub(super) fn reply(&self, message: &[u8]) -> Option<Reply> {
        let (header, _) = message.split_at_checked(HEADER)?;
        let (asked, question) = self.message.split_at_checked(HEADER)?;
        let &[id_high, id_low, flags, more, 0, 1, answers_high, answers_low, ..] = header else {
            return None;
        };
        // A reply (QR) to a standard query.
        if [id_high, id_low] != asked[..2] || flags & 0xf8 != 0x80 {
            return None;
        }
        let mut reader = Reader { rest: message.get(HEADER..)? };
        if !reader.take(question.len())?.eq_ignore_ascii_case(question) {
            return None;
        }
        let mut reply =
            Reply { code: more & 0x0f, truncated: flags & 0x02 != 0, addresses: Vec::new(), ttl: u32::MAX };
        let answers = u16::from_be_bytes([answers_high, answers_low]);
        for _ in 0..answers {
            match self.answer(&mut reader, &mut reply) {
                Some(()) => {}
                None if reply.truncated => break,
                None => return None,
            }
        }
        if reply.addresses.is_empty() {
            reply.ttl = 0;
        }
        Some(reply)
    }

    /// One record. Whose it is does not matter: a resolver has followed the aliases, and the chain of
    /// them holds as long as its shortest part.
    fn answer(&self, reader: &mut Reader<'_>, reply: &mut Reply) -> Option<()> {
        reader.skip_name()?;
        let (kind, class) = (reader.number()?, reader.number()?);
        let ttl = u32::from_be_bytes(reader.take(4)?.try_into().ok()?);
        let length = reader.number()?;
        let data = reader.take(usize::from(length))?;
        // RFC 2181 section 8: with the highest bit set it is 0.
        let ttl = if ttl > i32::MAX as u32 { 0 } else { ttl };
        reply.ttl = reply.ttl.min(ttl);
        if class != CLASS_IN || kind != self.family.kind() || reply.addresses.len() >= MAX_ADDRESSES {
            return Some(());
        }
        let address = match self.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?)),
            Family::V6 => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(data).ok()?)),
        };
        reply.addresses.push(address);
        Some(())
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    /// A name ends with an empty label, or with a pointer to the rest of it (section 4.1.4).
    fn skip_name(&mut self) -> Option<()> {
        loop {
            let &[length] = self.take(1)? else { return None };
            match length {
                0 => return Some(()),
                1..=63 => drop(self.take(usize::from(length))?),
                0xc0.. => return self.take(1).map(drop),
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn question() -> Question {
        Question::new(0x1234, "app.test", Family::V4).unwrap()
    }

    /// A reply to [`question`] with these records: (kind, TTL, data).
    fn reply(code: u8, records: &[(u16, u32, &[u8])]) -> Vec<u8> {
        let mut message = question().message().to_vec();
        message[2..4].copy_from_slice(&[0x81, 0x80 | code]);
        message[7] = records.len() as u8;
        for (kind, ttl, data) in records {
            message.extend_from_slice(&[0xc0, 12]);
            message.extend_from_slice(&kind.to_be_bytes());
            message.extend_from_slice(&[0, 1]);
            message.extend_from_slice(&ttl.to_be_bytes());
            message.extend_from_slice(&(data.len() as u16).to_be_bytes());
            message.extend_from_slice(data);
        }
        message
    }

    #[test]
    fn a_question_is_written_as_the_standard_says() {
        let expected = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03app\x04test\0\0\x01\0\x01";
        assert_eq!(question().message(), expected);
        assert_eq!(Question::new(0x1234, "app.test.", Family::V4), Some(question()));
        for name in ["", "a..b", ".", &"x".repeat(64), &"abc.".repeat(64)] {
            assert_eq!(Question::new(1, name, Family::V4), None, "{name}");
        }
    }

    #[test]
    fn addresses_behind_an_alias_hold_as_long_as_the_shortest_part() {
        let alias = b"\x05other\xc0\x10";
        let records =
            [(5, 30, &alias[..]), (1, 60, &[10, 0, 0, 1]), (1, 90, &[10, 0, 0, 2]), (28, 60, &[0; 16])];
        let reply = question().reply(&reply(0, &records)).unwrap();
        assert_eq!((reply.code, reply.truncated, reply.ttl), (0, false, 30));
        assert_eq!(reply.addresses, [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])]);
    }

    #[test]
    fn what_answers_something_else_is_no_reply() {
        let good = reply(0, &[(1, 60, &[10, 0, 0, 1])]);
        assert!(question().reply(&good).is_some());
        let changed = |place: usize, byte: u8| {
            let mut message = good.clone();
            message[place] = byte;
            question().reply(&message)
        };
        assert_eq!(changed(0, 0x99), None, "another id");
        assert_eq!(changed(2, 0x01), None, "a query");
        assert_eq!(changed(13, b'x'), None, "another name");
        assert_eq!(changed(23, 28), None, "another type");
        assert!(changed(13, b'A').is_some(), "case does not matter");
        for length in 0..good.len() {
            assert_eq!(question().reply(&good[..length]), None, "cut at {length}");
        }
    }

    #[test]
    fn errors_truncation_and_odd_lifetimes_are_seen() {
        let nobody = question().reply(&reply(3, &[])).unwrap();
        assert_eq!((nobody.code, nobody.addresses.len(), nobody.ttl), (3, 0, 0));
        let mut cut = reply(0, &[(1, 60, &[10, 0, 0, 1]), (1, 60, &[10, 0, 0, 2])]);
        cut[2] |= 0x02;
        cut.truncate(cut.len() - 3);
        assert!(question().reply(&cut).unwrap().truncated);
        let negative = question().reply(&reply(0, &[(1, u32::MAX, &[10, 0, 0, 1])])).unwrap();
        assert_eq!(negative.ttl, 0);
        assert_eq!(question().reply(&reply(0, &[(1, 60, &[10, 0, 1])])), None, "an address of three bytes");
        let many = vec![(1, 60, &[10, 0, 0, 1][..]); 200];
        assert_eq!(question().reply(&reply(0, &many)).unwrap().addresses.len(), MAX_ADDRESSES);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_to_an_end(
            tail in prop::collection::vec(any::<u8>(), 0..200), place in 0usize..40, byte in any::<u8>(),
        ) {
            let mut message = reply(0, &[(1, 60, &[10, 0, 0, 1])]);
            message[7] = 9;
            message.extend(tail);
            if let Some(changed) = message.get_mut(place) {
                *changed = byte;
            }
            let _ = question().reply(&message);
        }
    }
}
