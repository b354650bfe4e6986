//! What the line of a record looks like: JSON, Apache combined, or the operator's own template.
//!
//! JSON writes the keys of `record` in their order and leaves out those without a value. The other two
//! write `-` for a missing value, and escape as inside quotes. Addresses, times and numbers are appended
//! by hand: a record costs no allocation once the buffer has grown. A line ends with a line feed.

use super::record::{AccessRecord, Field};
use super::redact::{QueryRedaction, REDACTED};
use crate::telemetry::escape::{self, Style};
use crate::telemetry::timestamp;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Bytes of an ordinary JSON record.
const TYPICAL: usize = 768;

/// A compiled `access_log.format`.
#[derive(Debug, Clone)]
pub(super) enum Format {
    Json,
    Combined,
    Template(Template),
}

/// What is hidden, whatever the format.
#[derive(Debug, Clone, Default)]
pub(super) struct Redaction {
    /// Parameters of the query, and of the Referer's query.
    pub query: QueryRedaction,
    /// Fields that show a request header whose value is hidden, by [`Field::index`].
    pub hidden: [bool; Field::ALL.len()],
}

/// Text with fields in it.
#[derive(Debug, Clone)]
pub(super) struct Template(Vec<Part>);

#[derive(Debug, Clone)]
enum Part {
    Literal(Box<str>),
    Field(Field),
}

impl Template {
    /// Compiles `text`: `{key}` is a field, `{{` and `}}` are braces. The error is a reason for the
    /// operator, with a hint.
    pub(super) fn compile(text: &str) -> Result<Template, (String, String)> {
        let hint = || format!("keys: {}", Field::KEYS.join(", "));
        if text.chars().any(char::is_control) {
            return Err(("a control character in a template".into(), "one record is one line".into()));
        }
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(brace) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(brace);
            literal.push_str(before);
            if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
                literal.extend(from.chars().next());
                rest = after;
                continue;
            }
            let key = from.strip_prefix('{').and_then(|from| from.split_once('}'));
            let Some((key, after)) = key else {
                return Err(("an unpaired brace in a template".into(), "write {{ or }} for a brace".into()));
            };
            let Some(field) = Field::from_key(key) else {
                return Err((format!("unknown key {{{key}}}"), nearest(key).unwrap_or_else(hint)));
            };
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal).into()));
            }
            parts.push(Part::Field(field));
            rest = after;
        }
        literal.push_str(rest);
        if parts.is_empty() {
            return Err(("a template without any {key}".into(), format!("json, combined, or {}", hint())));
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal.into()));
        }
        Ok(Template(parts))
    }
}

impl Format {
    /// Appends the line of one record, line feed included.
    pub(super) fn append(&self, out: &mut Vec<u8>, record: &AccessRecord<'_>, redaction: &Redaction) {
        match self {
            Format::Json => append_json(out, record, redaction),
            Format::Combined => append_combined(out, record, redaction),
            Format::Template(Template(parts)) => {
                for part in parts {
                    match part {
                        Part::Literal(text) => out.extend_from_slice(text.as_bytes()),
                        Part::Field(field) => append_or_dash(out, *field, record, redaction),
                    }
                }
            }
        }
        out.push(b'\n');
    }
}

fn append_json(out: &mut Vec<u8>, record: &AccessRecord<'_>, redaction: &Redaction) {
    let start = out.len();
    out.reserve(TYPICAL);
    for (field, key) in Field::ALL.iter().zip(Field::JSON_KEYS) {
        let before = out.len();
        out.extend_from_slice(key.as_bytes());
        let number = field.is_number();
        if number {
            // Without the quote the key ends with.
            out.pop();
        }
        if !append_value(out, *field, record, redaction, Style::Json) {
            out.truncate(before);
        } else if !number {
            out.push(b'"');
        }
    }
    // Every key starts with the comma that separates it from the one before; the first has none.
    if let Some(first) = out.get_mut(start) {
        *first = b'{';
    }
    out.push(b'}');
}

/// `%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-agent}i"`, Apache's own definition of combined.
fn append_combined(out: &mut Vec<u8>, record: &AccessRecord<'_>, redaction: &Redaction) {
    append_or_dash(out, Field::Client, record, redaction);
    out.extend_from_slice(b" - - [");
    timestamp::append_apache(out, record.time);
    out.extend_from_slice(b"] \"");
    append_or_dash(out, Field::Method, record, redaction);
    out.push(b' ');
    append_or_dash(out, Field::Path, record, redaction);
    if record.query.is_some() {
        out.push(b'?');
        append_value(out, Field::Query, record, redaction, Style::Quoted);
    }
    out.push(b' ');
    out.extend_from_slice(record.protocol.as_bytes());
    out.extend_from_slice(b"\" ");
    append_number(out, record.status);
    out.push(b' ');
    match record.bytes_out {
        0 => out.push(b'-'),
        bytes => append_number(out, bytes),
    }
    for field in [Field::Referer, Field::UserAgent] {
        out.extend_from_slice(b" \"");
        append_or_dash(out, field, record, redaction);
        out.push(b'"');
    }
}

fn append_or_dash(out: &mut Vec<u8>, field: Field, record: &AccessRecord<'_>, redaction: &Redaction) {
    if !append_value(out, field, record, redaction, Style::Quoted) {
        out.push(b'-');
    }
}

/// Appends one value, escaped; `false` and nothing when there is none.
fn append_value(
    out: &mut Vec<u8>,
    field: Field,
    record: &AccessRecord<'_>,
    redaction: &Redaction,
    style: Style,
) -> bool {
    let text: Option<&[u8]> = match field {
        Field::RequestId => Some(record.request_id.as_bytes()),
        Field::Listener => Some(record.listener.as_bytes()),
        Field::Tls => record.tls.map(str::as_bytes),
        Field::Method => Some(record.method.as_bytes()),
        Field::Host => Some(record.host.as_bytes()),
        Field::Path => Some(record.path.as_bytes()),
        Field::Query => record.query.map(str::as_bytes),
        Field::Protocol => Some(record.protocol.as_bytes()),
        Field::Upstream => record.upstream.map(str::as_bytes),
        Field::Endpoint => record.endpoint.map(str::as_bytes),
        Field::Retries => record.retries.map(str::as_bytes),
        Field::Route => Some(record.route.as_bytes()),
        Field::Rejection => record.rejection.map(str::as_bytes),
        Field::RejectionDetail => record.rejection_detail.map(str::as_bytes),
        Field::UserAgent => record.user_agent,
        Field::Referer => record.referer,
        _ => return append_measure(out, field, record),
    };
    let Some(text) = text else { return false };
    if redaction.hidden.get(field.index()).copied().unwrap_or(false) {
        out.extend_from_slice(REDACTED);
        return true;
    }
    match field {
        Field::Query => redaction.query.append(out, text, style),
        Field::Referer => redaction.query.append_url(out, text, style),
        _ => escape::append(out, text, style),
    }
    true
}

/// The same for what is no text: times, addresses and numbers, which need no escaping.
fn append_measure(out: &mut Vec<u8>, field: Field, record: &AccessRecord<'_>) -> bool {
    match field {
        Field::Time => timestamp::append_rfc3339(out, record.time),
        Field::Client => append_address(out, record.client),
        Field::Peer => match record.peer {
            Some(peer) => append_socket_address(out, peer),
            None => return false,
        },
        Field::Status => append_number(out, record.status),
        Field::BytesIn => append_number(out, record.bytes_in),
        Field::BytesOut => append_number(out, record.bytes_out),
        Field::Duration => append_milliseconds(out, record.duration),
        Field::UpstreamTime => match record.upstream_time {
            Some(time) => append_milliseconds(out, time),
            None => return false,
        },
        Field::Attempts => append_number(out, record.attempts),
        Field::Generation => append_number(out, record.generation),
        _ => return false,
    }
    true
}

fn append_number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Milliseconds with three decimal digits.
fn append_milliseconds(out: &mut Vec<u8>, duration: Duration) {
    append_number(out, duration.as_millis());
    timestamp::append_fraction(out, duration.subsec_micros() % 1000);
}

fn append_address(out: &mut Vec<u8>, address: IpAddr) {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            for (index, octet) in address.octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                append_number(out, octet);
            }
        }
        // Compression is what the standard library is good at; it writes without allocating.
        IpAddr::V6(address) => drop(write!(out, "{address}")),
    }
}

fn append_socket_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => append_address(out, IpAddr::V4(ip)),
        IpAddr::V6(ip) => drop(write!(out, "[{ip}]")),
    }
    out.push(b':');
    append_number(out, address.port());
}

fn nearest(key: &str) -> Option<String> {
    let similar = Field::KEYS.iter().map(|known| (strsim::jaro_winkler(key, known), known));
    let (score, known) = similar.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (score > 0.8).then(|| format!("did you mean {{{known}}}?"))
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
