//! A client and an origin that play one case, and note what they see.
//!
//! What is not the same from one run to the next is left out of the notes: dates, request ids, ports, and
//! how a chunked body was cut into chunks, which depends on timing.

use super::reading::{Body, Reading, field, fill, find, shown};
use crate::support::eventually::{DEADLINE, until, within};
use socket2::SockRef;
use std::collections::VecDeque;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a pause between two pieces is: long enough for the gateway to see them apart.
const PAUSE: Duration = Duration::from_millis(40);

/// What the origin does about a request, step by step; then it waits for the next one. It reads the body
/// before, unless the first step says otherwise.
#[derive(Debug, Clone)]
pub enum Act {
    /// Reads no more than so many bytes of the body for now.
    Early(usize),
    /// Reads the rest of the body.
    Rest,
    /// Sends this in one piece.
    Send(Vec<u8>),
    /// Sends every byte in a packet of its own.
    Trickle(Vec<u8>),
    /// Lets the gateway look at what there is.
    Pause,
    /// The same, without a look at what the gateway sends.
    Idle,
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
    /// Waits until the gateway has closed the connection.
    Gone,
}

/// What the client does.
#[derive(Debug, Clone)]
pub enum Do {
    /// Sends this.
    Send(Vec<u8>),
    /// Reads a response, or what there is of one.
    Read,
    /// Reads so many bytes of whatever comes.
    Bytes(usize),
    /// Waits until the origin has so many requests.
    Arrived(usize),
    /// Lets the gateway look at what there is.
    Pause,
    /// Says that it will send no more.
    HalfClose,
    /// Closes the connection.
    Close,
    /// Resets the connection.
    Reset,
}

/// What the origin saw on one connection.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// Requests as they came.
    pub requests: Vec<String>,
    /// The gateway has closed it.
    pub closed: bool,
}

/// An origin that answers the requests of one case.
pub struct Origin {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    replies: Mutex<VecDeque<Vec<Act>>>,
    seen: Mutex<Vec<Seen>>,
    /// Where a body breaks off is not the same twice.
    races: bool,
    stop: AtomicBool,
}

impl Origin {
    /// Answers with these, one after the other, and then with 200. `races`: where a body breaks off is not noted.
    pub fn start(replies: Vec<Vec<Act>>, races: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared { replies: Mutex::new(replies.into()), races, ..Shared::default() });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.stop.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                let number = {
                    let mut seen = shared.seen.lock().unwrap();
                    seen.push(Seen::default());
                    seen.len() - 1
                };
                std::thread::spawn(move || serve(stream, number, &shared));
            }
        });
        Origin { address, shared }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has seen, connection by connection.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    fn requests(&self) -> usize {
        self.shared.seen.lock().unwrap().iter().map(|connection| connection.requests.len()).sum()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(stream: TcpStream, number: usize, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let mut reading = Reading::new(stream);
    while let Some(head) = reading.head() {
        let seen = |change: &dyn Fn(&mut Seen)| change(&mut shared.seen.lock().unwrap()[number]);
        seen(&|seen| seen.requests.push(normal_request(&head)));
        let default = || vec![Act::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nagain".to_vec())];
        let reply = shared.replies.lock().unwrap().pop_front().unwrap_or_else(default);
        let mut body = Body::announced(&head);
        let early = if let Some(Act::Early(enough)) = reply.first() { Some(*enough) } else { None };
        reading.body(&mut body, early.unwrap_or(usize::MAX));
        // Of two that close, either may be the first.
        let closes = reply.iter().any(|act| matches!(act, Act::Close | Act::Reset));
        let end = match early.is_some() || body.is_whole() {
            true => reply.iter().find_map(|act| perform(act, &mut reading, &mut body)),
            false => Some(End::Gone),
        };
        if end.is_none() {
            reading.body(&mut body, usize::MAX);
        }
        seen(&|seen| {
            seen.requests
                .last_mut()
                .expect("one")
                .push_str(&body.note(shared.races || (closes && early.is_some())));
            seen.closed = end == Some(End::Gone) && !closes;
        });
        match end {
            Some(End::Reset) => return reset(&reading.stream),
            Some(_) => return,
            None => {}
        }
    }
    shared.seen.lock().unwrap()[number].closed = true;
}

/// What becomes of a connection.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Close,
    Reset,
    /// The gateway was the first.
    Gone,
}

fn perform(act: &Act, reading: &mut Reading, body: &mut Body) -> Option<End> {
    let stream = &mut reading.stream;
    let done = match act {
        Act::Early(_) => true,
        Act::Rest => {
            reading.body(body, usize::MAX);
            body.is_whole()
        }
        Act::Send(bytes) => stream.write_all(bytes).is_ok(),
        Act::Trickle(bytes) => bytes.iter().all(|byte| stream.write_all(&[*byte]).is_ok()),
        Act::Pause => !is_gone(reading, PAUSE),
        Act::Idle => {
            within(PAUSE, || None::<()>);
            true
        }
        Act::Gone => {
            until("the gateway to close", || is_gone(reading, PAUSE));
            false
        }
        Act::Close => return Some(End::Close),
        Act::Reset => return Some(End::Reset),
    };
    if done { None } else { Some(End::Gone) }
}

fn reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Whether the other side closes within `patience`.
fn is_gone(reading: &mut Reading, patience: Duration) -> bool {
    let _ = reading.stream.set_read_timeout(Some(patience));
    let read = reading.fill();
    let _ = reading.stream.set_read_timeout(None);
    matches!(read, Some(0))
}

/// Fields of different names in the order of their names: theirs means nothing (RFC 9110 section 5.3), nor does the
/// case of a name, which differs for Upgrade.
pub fn normal_request(request: &str) -> String {
    let normal = |line: &str| match line.split_once(": ") {
        Some((name, _)) if name.eq_ignore_ascii_case("x-request-id") => "x-request-id: *".to_owned(),
        Some((name, value)) if name.eq_ignore_ascii_case("upgrade") => format!("upgrade: {value}"),
        _ => line.to_owned(),
    };
    let (head, body) = request.split_once("\r\n\r\n").unwrap_or((request, ""));
    let mut lines: Vec<String> = head.split("\r\n").map(normal).collect();
    lines[1..].sort_by_key(|line| line.split(':').next().unwrap_or_default().to_ascii_lowercase());
    format!("{}\n\n{body}", lines.join("\n"))
}

/// Plays the client's part; gives its notes.
pub fn play(address: SocketAddr, steps: &[Do], origin: &Origin) -> Vec<String> {
    let mut client = Client {
        stream: TcpStream::connect(address).expect("a connection"),
        buffer: Vec::new(),
        sent: String::new(),
        methods: VecDeque::new(),
        notes: Vec::new(),
        ended: false,
    };
    client.stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    client.stream.set_write_timeout(Some(DEADLINE)).expect("a timeout");
    client.stream.set_nodelay(true).expect("an option");
    for step in steps {
        match step {
            Do::Send(bytes) => client.send(bytes),
            Do::Read => client.read_response(),
            Do::Bytes(count) => client.read_bytes(*count),
            Do::Arrived(count) => until("requests at the origin", || origin.requests() >= *count),
            Do::Pause => drop(within(PAUSE, || None::<()>)),
            Do::HalfClose => drop(client.stream.shutdown(Shutdown::Write)),
            Do::Close => return client.notes,
            Do::Reset => {
                reset(&client.stream);
                return client.notes;
            }
        }
    }
    client.notes
}

struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    sent: String,
    methods: VecDeque<String>,
    notes: Vec<String>,
    ended: bool,
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        self.sent.push_str(&text);
        let heads = text.split("\r\n\r\n").filter(|head| head.contains(" HTTP/1."));
        self.methods.extend(heads.filter_map(|head| head.split(' ').next()).map(str::to_owned));
        let _ = self.stream.write_all(bytes);
    }

    fn more(&mut self) -> bool {
        if !self.ended {
            match fill(&mut self.stream, &mut self.buffer) {
                Some(0) => self.ended = true,
                Some(_) => {}
                None => panic!("to {}: nothing came in time after {:?}", self.sent, self.notes),
            }
        }
        !self.ended
    }

    fn read_bytes(&mut self, count: usize) {
        while self.buffer.len() < count && self.more() {}
        self.notes.push(format!("{} bytes or more: {}", count, self.buffer.len() >= count));
    }

    /// Interim responses are noted one by one.
    fn read_response(&mut self) {
        let method = self.methods.pop_front().unwrap_or_default();
        loop {
            let Some(head) = self.read_head() else {
                let rest = std::mem::take(&mut self.buffer);
                return self.notes.push(format!("closed after {}", shown(&rest)));
            };
            let status = head.split(' ').nth(1).unwrap_or_default().to_owned();
            self.notes.push(normal_head(&head));
            if !status.starts_with('1') || status == "101" {
                if method != "HEAD" && !matches!(status.as_str(), "101" | "204" | "304") {
                    self.read_body(&head);
                }
                return;
            }
        }
    }

    fn read_head(&mut self) -> Option<String> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
                return Some(String::from_utf8_lossy(&head[..end]).into_owned());
            }
            if !self.more() {
                return None;
            }
        }
    }

    fn read_body(&mut self, head: &str) {
        if field(head, "transfer-encoding").is_some() {
            let mut body = Vec::new();
            let whole = self.read_chunks(&mut body).is_some();
            self.notes.push(format!("chunked, whole: {whole}, {}", shown(&body)));
        } else if let Some(length) = field(head, "content-length") {
            let length: usize = length.parse().expect("a length");
            while self.buffer.len() < length && self.more() {}
            let count = length.min(self.buffer.len());
            let body: Vec<u8> = self.buffer.drain(..count).collect();
            self.notes.push(format!("length, whole: {}, {}", count == length, shown(&body)));
        } else {
            while self.more() {}
            let body = std::mem::take(&mut self.buffer);
            self.notes.push(format!("until close, {}", shown(&body)));
        }
    }

    fn read_chunks(&mut self, body: &mut Vec<u8>) -> Option<()> {
        loop {
            let line = self.take_line()?;
            let size = usize::from_str_radix(&line, 16).expect("a chunk size");
            while self.buffer.len() < size + 2 {
                if !self.more() {
                    body.append(&mut self.buffer);
                    return None;
                }
            }
            body.extend(self.buffer.drain(..size));
            assert_eq!(self.buffer.drain(..2).collect::<Vec<_>>(), b"\r\n", "after a chunk");
            if size == 0 {
                return Some(());
            }
        }
    }

    fn take_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Some(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if !self.more() {
                return None;
            }
        }
    }
}

fn normal_head(head: &str) -> String {
    let normal = |line: &str| match line.starts_with("Date: ") {
        true => "Date: *".to_owned(),
        false => line.to_owned(),
    };
    head.split("\r\n").map(normal).collect::<Vec<_>>().join("\n")
}
