//! Telling a websocket that the gateway leaves: a Close frame (RFC 6455 section 5.5.1) between two frames
//! of the upstream's.
//!
//! A tunnel is bytes; a frame of ours may only go between two of theirs. So the headers of the frames
//! that pass on their way to the client are followed, and nothing else of them is looked at. Once told,
//! a client answers with a Close of its own, which ends the upstream's side too; what the upstream
//! still sends is dropped, because nothing may follow a Close.

/// Final fragment, Close, two bytes, status 1001: "going away" (RFC 6455 section 7.4.1).
const CLOSE: [u8; 4] = [0x88, 0x02, 0x03, 0xE9];

/// The longest frame header (RFC 6455 section 5.2).
const LONGEST: usize = 14;

/// What goes to the client of one websocket.
#[derive(Debug, Default)]
pub struct Goodbye {
    at: At,
    /// A write of the engine's has begun and is to be repeated: nothing may come before that.
    blocked: bool,
    told: bool,
}

/// Where the bytes that went out have ended.
#[derive(Debug)]
enum At {
    /// In the response head, with so many bytes of its end seen.
    Head(usize),
    /// In the header of a frame, so many bytes into it; 0: between two frames.
    Header([u8; LONGEST], usize),
    /// Before so many bytes of a frame's payload.
    Payload(u64),
    /// After the upstream's own Close.
    Closed,
}

impl Default for At {
    fn default() -> Self {
        At::Head(0)
    }
}

impl Goodbye {
    /// The client has been told: nothing more may go to it.
    pub fn is_said(&self) -> bool {
        self.told
    }

    /// These bytes went out; `None`: some could not, and will be tried again.
    pub fn wrote(&mut self, bytes: Option<&[u8]>) {
        self.blocked = bytes.is_none();
        let mut rest = bytes.unwrap_or_default();
        while !rest.is_empty() {
            rest = self.at.advance(rest);
        }
    }

    /// What is to be sent to say it, if this is the moment for it; from then on it is said.
    pub fn say(&mut self) -> Option<&'static [u8]> {
        let between = matches!(self.at, At::Header(_, 0));
        if !between || self.blocked || self.told {
            return None;
        }
        self.told = true;
        Some(&CLOSE)
    }
}

impl At {
    /// Takes some bytes in; gives the rest.
    fn advance<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        const END: &[u8] = b"\r\n\r\n";
        let Some((&first, after)) = bytes.split_first() else { return bytes };
        match self {
            At::Head(seen) => {
                *seen = match END.get(*seen) == Some(&first) {
                    true => *seen + 1,
                    false => usize::from(first == b'\r'),
                };
                if *seen == END.len() {
                    *self = At::Header([0; LONGEST], 0);
                }
                after
            }
            At::Header(header, length) => {
                if let Some(place) = header.get_mut(*length) {
                    *place = first;
                }
                *length += 1;
                if let Some(payload) = payload(header, *length) {
                    let closes = header[0] & 0x0F == 0x8;
                    *self = if closes { At::Closed } else { At::of_payload(payload) };
                }
                after
            }
            At::Payload(left) => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *self = At::of_payload(*left - count as u64);
                bytes.get(count..).unwrap_or_default()
            }
            At::Closed => &[],
        }
    }

    fn of_payload(left: u64) -> At {
        if left == 0 { At::Header([0; LONGEST], 0) } else { At::Payload(left) }
    }
}

/// The payload's length, once the header is complete.
fn payload(header: &[u8; LONGEST], length: usize) -> Option<u64> {
    if length < 2 {
        return None;
    }
    let extended = match header[1] & 0x7F {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let mask = if header[1] & 0x80 == 0 { 0 } else { 4 };
    if length < 2 + extended + mask {
        return None;
    }
    let bytes = header.get(2..2 + extended).unwrap_or_default();
    let long = bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Some(if extended == 0 { u64::from(header[1] & 0x7F) } else { long })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n";

    fn frame(opcode: u8, payload: usize) -> Vec<u8> {
        let mut frame = vec![0x80 | opcode];
        match payload {
            0..126 => frame.push(payload as u8),
            126..65536 => frame.extend([126, (payload >> 8) as u8, payload as u8]),
            _ => frame.extend([&[127][..], &(payload as u64).to_be_bytes()].concat()),
        }
        frame.resize(frame.len() + payload, 0x88);
        frame
    }

    #[test]
    fn it_is_said_between_frames_only_however_the_bytes_are_cut() {
        let frames = [frame(1, 0), frame(2, 5), frame(9, 125), frame(0, 126), frame(1, 70_000)];
        let mut ends = vec![HEAD.len()];
        ends.extend(frames.iter().scan(HEAD.len(), |end, frame| {
            *end += frame.len();
            Some(*end)
        }));
        let stream = [HEAD, &frames.concat()].concat();
        for piece in [1, 2, 3, 7, 1000, stream.len()] {
            let (mut goodbye, mut sent) = (Goodbye::default(), 0);
            for bytes in stream.chunks(piece) {
                goodbye.wrote(Some(bytes));
                sent += bytes.len();
                let mut probe = Goodbye { at: At::Closed, ..Goodbye::default() };
                std::mem::swap(&mut probe, &mut goodbye);
                assert_eq!(probe.say().is_some(), ends.contains(&sent), "{piece}: after {sent} bytes");
                probe.told = false;
                goodbye = probe;
            }
        }
    }

    #[test]
    fn it_is_said_once_and_not_after_the_upstreams_own_nor_before_a_write_to_be_repeated() {
        let mut goodbye = Goodbye::default();
        goodbye.wrote(Some(HEAD));
        goodbye.wrote(None);
        assert!(goodbye.say().is_none());
        goodbye.wrote(Some(&frame(1, 3)));
        assert_eq!(goodbye.say(), Some(&CLOSE[..]));
        assert!(goodbye.is_said() && goodbye.say().is_none());
        let mut closed = Goodbye::default();
        closed.wrote(Some(HEAD));
        closed.wrote(Some(&frame(8, 2)));
        assert!(closed.say().is_none());
    }
}
