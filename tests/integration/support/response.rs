//! One HTTP/1 response off the wire, strictly: what the parser does not understand fails the test.

use std::io::{self, Read};

/// A response as it came.
#[derive(Debug, Clone, Default)]
pub struct Response {
    /// The status line without its line break (empty for HTTP/2).
    pub status_line: String,
    /// The code.
    pub status: u16,
    /// Fields in order, names as sent.
    pub headers: Vec<(String, String)>,
    /// The body, decoded if it was chunked.
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a field; `None` when it is missing. Panics when it came more than once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let values = self.header_all(name);
        assert!(values.len() < 2, "{name} came {} times: {values:?}", values.len());
        values.first().copied()
    }

    /// All values of a field, in order.
    pub fn header_all(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body in UTF-8")
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {}", String::from_utf8_lossy(&self.body)))
    }
}

/// Takes one response to a request with this method off `buffer`, reading more as needed. Interim
/// responses (1xx except 101) are skipped.
pub fn read_response(reader: &mut impl Read, buffer: &mut Vec<u8>, method: &str) -> io::Result<Response> {
    loop {
        let mut response = read_head(reader, buffer)?;
        if (100..200).contains(&response.status) && response.status != 101 {
            continue;
        }
        let bodiless = method == "HEAD" || matches!(response.status, 101 | 204 | 304);
        if !bodiless {
            response.body = read_body(reader, buffer, &response)?;
        }
        return Ok(response);
    }
}

/// Reads once more into `buffer`; an end of stream is an error of kind `UnexpectedEof`.
pub fn fill(reader: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<()> {
    let mut chunk = [0; 16 * 1024];
    match reader.read(&mut chunk)? {
        0 => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("closed after {:?}", String::from_utf8_lossy(buffer)),
        )),
        count => {
            buffer.extend_from_slice(&chunk[..count]);
            Ok(())
        }
    }
}

/// Where `needle` starts.
pub fn position(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn read_head(reader: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<Response> {
    let end = loop {
        match position(buffer, b"\r\n\r\n") {
            Some(end) => break end,
            None => fill(reader, buffer)?,
        }
    };
    let head: Vec<u8> = buffer.drain(..end + 4).collect();
    let head = std::str::from_utf8(&head[..end]).map_err(io::Error::other)?;
    let mut lines = head.split("\r\n");
    let status_line = lines.next().unwrap_or_default().to_owned();
    let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("no status in {status_line:?}")))?;
    let headers = lines.map(|line| {
        let (name, value) =
            line.split_once(':').ok_or_else(|| io::Error::other(format!("field {line:?}")))?;
        Ok((name.to_owned(), value.trim().to_owned()))
    });
    Ok(Response { status_line, status, headers: headers.collect::<io::Result<_>>()?, body: Vec::new() })
}

fn read_body(reader: &mut impl Read, buffer: &mut Vec<u8>, head: &Response) -> io::Result<Vec<u8>> {
    if let Some(coding) = head.header("transfer-encoding") {
        assert_eq!(coding, "chunked", "a transfer coding nobody asked for");
        assert!(head.header("content-length").is_none(), "Content-Length beside Transfer-Encoding");
        return read_chunks(reader, buffer);
    }
    if let Some(length) = head.header("content-length") {
        return take(reader, buffer, length.parse().map_err(io::Error::other)?);
    }
    loop {
        match fill(reader, buffer) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(std::mem::take(buffer)),
            Err(error) => return Err(error),
        }
    }
}

fn read_chunks(reader: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = take_line(reader, buffer)?;
        let size = line.split(';').next().unwrap_or_default();
        let size = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
        if size == 0 {
            while !take_line(reader, buffer)?.is_empty() {}
            return Ok(body);
        }
        body.extend(take(reader, buffer, size)?);
        assert_eq!(take_line(reader, buffer)?, "", "a chunk ends with a line break");
    }
}

fn take(reader: &mut impl Read, buffer: &mut Vec<u8>, count: usize) -> io::Result<Vec<u8>> {
    while buffer.len() < count {
        fill(reader, buffer)?;
    }
    Ok(buffer.drain(..count).collect())
}

fn take_line(reader: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<String> {
    loop {
        if let Some(end) = position(buffer, b"\r\n") {
            let line: Vec<u8> = buffer.drain(..end + 2).collect();
            return String::from_utf8(line[..end].to_vec()).map_err(io::Error::other);
        }
        fill(reader, buffer)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(wire: &str) -> io::Result<(Response, Vec<u8>)> {
        let mut buffer = Vec::new();
        let response = read_response(&mut wire.as_bytes(), &mut buffer, "GET")?;
        Ok((response, buffer))
    }

    #[test]
    fn what_follows_a_response_stays_in_the_buffer() {
        let (response, rest) = parse("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1").unwrap();
        assert_eq!((response.status, response.text(), rest.as_slice()), (200, "hi", &b"HTTP/1.1"[..]));
    }

    #[test]
    fn chunks_are_joined_and_interim_responses_skipped() {
        let wire = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                    2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n";
        assert_eq!(parse(wire).unwrap().0.text(), "hello");
    }

    #[test]
    fn a_body_cut_short_is_an_error() {
        let error = parse("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
