//! Cases of `tests/fixtures/wire`: bytes a client sends, and what must come of them.
//!
//! A file holds cases one after the other. `### name` begins one; lines that follow it and begin with
//! `# ` say what is expected:
//!
//! - `# answers: 200 400 close`: the statuses in order (`400|501` where either is right), then `close`
//!   when the gateway ends the connection, `open` when it goes on, `any` where the engine does either.
//!   `close` alone: no answer at all.
//! - `# upstream: 1`: how many requests reach the origin; as many as there are 2xx when left out.
//! - `# reason: malformed`: the word in the access record of the last request (`target|malformed` where
//!   it depends on how the bytes arrive).
//! - `# detail: nul`: and the word for its cause, in one piece.
//! - `# whole`: sent in one piece only, because it is large or what is sent depends on time.
//! - `# > GET /x HTTP/1.1`: the head the origin must see, line by line, without the fields the gateway
//!   sets itself; a further request line begins the next head. `# body: hello` is the body of that request.
//! - `# note: …`: for people.
//!
//! Everything else is what is sent: each line with CRLF behind it, unless it ends with `\`. Escapes
//! are `\r \n \t \0 \\ \xNN`, and `\{100*ab}` repeats.

use super::{Gateway, Origin, Received};
use std::path::Path;

/// One case.
#[derive(Debug, Default, Clone)]
pub struct Case {
    /// `file: name`.
    pub name: String,
    /// What is sent.
    pub bytes: Vec<u8>,
    /// The statuses that are right, for each answer.
    pub answers: Vec<Vec<u16>>,
    /// Whether the connection goes on afterwards; `None` when either is right.
    pub open: Option<bool>,
    /// Requests that reach the origin; more than one number where either is right.
    pub upstream: Vec<usize>,
    /// The word in the access record.
    pub reason: Option<String>,
    /// The word for its cause there.
    pub detail: Option<String>,
    /// Not to be sent byte by byte.
    pub whole: bool,
    /// Heads the origin must see, in order; empty when only their number is known.
    pub heads: Vec<Vec<String>>,
    /// Bodies that belong to [`Case::heads`].
    pub bodies: Vec<String>,
}

/// What has reached the origin since it had `seen` so many requests. Asks once more, as another client, who
/// must get its own answer: whatever a case has left on a connection to the origin would show in that.
pub fn left_behind(gateway: &Gateway, origin: &Origin, seen: usize) -> Result<Vec<Received>, String> {
    let sentinel = gateway.get("app.test", "/sentinel");
    if (sentinel.status, sentinel.text()) != (200, "hello") {
        return Err(format!("the next request gets {sentinel:?}"));
    }
    let mut requests = origin.requests().split_off(seen);
    let sentinel = requests.pop().expect("the sentinel");
    if sentinel.target() != "/sentinel" {
        return Err(format!("the origin's last request is {}", sentinel.head));
    }
    Ok(requests)
}

/// All cases of a folder, in the order of file names.
pub fn cases(dir: &Path) -> Vec<Case> {
    let mut files: Vec<_> =
        std::fs::read_dir(dir).expect("a folder").map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "http"));
    files.sort();
    files.iter().flat_map(|file| parse(file)).collect()
}

fn parse(file: &Path) -> Vec<Case> {
    let text = std::fs::read_to_string(file).expect("a file of cases");
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let mut cases: Vec<Case> = Vec::new();
    let mut in_header = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            cases.push(Case { name: format!("{stem}: {name}"), ..Case::default() });
            in_header = true;
            continue;
        }
        let Some(case) = cases.last_mut() else { continue };
        match line.strip_prefix("# ").filter(|_| in_header) {
            Some(directive) => case.expect(directive),
            None => {
                in_header = false;
                case.send(line);
            }
        }
    }
    for case in &mut cases {
        if case.upstream.is_empty() {
            let answered = case.answers.iter().filter(|answer| answer.iter().all(|status| status / 100 == 2));
            case.upstream = vec![answered.count()];
        }
    }
    cases
}

impl Case {
    fn expect(&mut self, directive: &str) {
        if let Some(line) = directive.strip_prefix("> ") {
            if line.contains(" HTTP/1.") || self.heads.is_empty() {
                self.heads.push(Vec::new());
                self.bodies.push(String::new());
            }
            self.heads.last_mut().unwrap().push(line.to_owned());
            return;
        }
        let (key, value) = directive.split_once(": ").unwrap_or((directive, ""));
        match key {
            "answers" => self.expect_answers(value),
            "upstream" => self.upstream = value.split('|').map(|count| count.parse().unwrap()).collect(),
            "reason" => self.reason = Some(value.to_owned()),
            "detail" => self.detail = Some(value.to_owned()),
            "whole" => self.whole = true,
            "body" => *self.bodies.last_mut().expect("a head before its body") = value.to_owned(),
            "note" => {}
            _ => panic!("{}: what is `{directive}`?", self.name),
        }
    }

    fn expect_answers(&mut self, value: &str) {
        for word in value.split(' ') {
            match word {
                "open" => self.open = Some(true),
                "close" => self.open = Some(false),
                "any" => self.open = None,
                statuses => {
                    self.answers.push(statuses.split('|').map(|status| status.parse().unwrap()).collect())
                }
            }
        }
        let ending = value.rsplit(' ').next();
        assert!(matches!(ending, Some("open" | "close" | "any")), "{}: open or close?", self.name);
    }

    fn send(&mut self, line: &str) {
        let (line, ended) = match line.strip_suffix('\\') {
            Some(rest) if !rest.ends_with('\\') => (rest, false),
            _ => (line, true),
        };
        unescape(line, &mut self.bytes);
        if ended {
            self.bytes.extend_from_slice(b"\r\n");
        }
    }
}

fn unescape(line: &str, out: &mut Vec<u8>) {
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\\') {
        out.extend_from_slice(before.as_bytes());
        let mut chars = after.chars();
        match chars.next() {
            Some('r') => out.push(b'\r'),
            Some('n') => out.push(b'\n'),
            Some('t') => out.push(b'\t'),
            Some('0') => out.push(0),
            Some('\\') => out.push(b'\\'),
            Some('x') => {
                out.push(u8::from_str_radix(&after[1..3], 16).expect("two digits"));
                rest = &after[3..];
                continue;
            }
            Some('{') => {
                let (repeat, after) = after[1..].split_once('}').expect("a closing brace");
                let (count, what) = repeat.split_once('*').expect("a count");
                let mut piece = Vec::new();
                unescape(what, &mut piece);
                out.extend(piece.repeat(count.parse().expect("a count")));
                rest = after;
                continue;
            }
            other => panic!("no escape: {other:?} in {line:?}"),
        }
        rest = chars.as_str();
    }
    out.extend_from_slice(rest.as_bytes());
}

#[test]
fn a_case_is_read_with_what_is_expected_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let text = "### one\n# answers: 200 400|501 close\n# > GET /x HTTP/1.1\n# > Host: a\n# body: hi\n\
                GET /\\{3*a} HTTP/1.1\n\nend\\\n### two\n# answers: close\n\\x16\\0\\\\\n";
    std::fs::write(dir.path().join("a.http"), text).unwrap();
    let cases = cases(dir.path());
    assert_eq!(cases[0].bytes, b"GET /aaa HTTP/1.1\r\n\r\nend");
    assert_eq!((cases[0].answers.as_slice(), cases[0].open), (&[vec![200], vec![400, 501]][..], Some(false)));
    assert_eq!((cases[0].heads[0].len(), cases[0].bodies[0].as_str()), (2, "hi"));
    assert_eq!((cases[1].bytes.as_slice(), &cases[1].upstream[..]), (&b"\x16\0\\\r\n"[..], &[0][..]));
}
