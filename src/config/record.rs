//! What reading a tree finds wrong: recorded with its place, and the place refused, so that reading
//! can go on without it. Does not know how values are read.

use super::Problem;
use super::error::{HINT_MARK, MAX_PROBLEMS, quoted};
use super::suggest;
use super::tree::{Node, Value};
use serde::de;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;

/// The text of an error whose problem was recorded: reading may go on after it.
pub(super) const RECORDED: &str = "recorded";

/// Keys that the contract names and a later version brings.
const LATER: [&str; 6] = ["token_file", "mode", "when", "filters", "files", "tests"];

/// Keys of an upstream, which a route does not have.
const OF_UPSTREAMS: [&str; 12] = [
    "endpoints",
    "balance",
    "sticky",
    "slow_start",
    "panic_percent",
    "ejection",
    "max_requests",
    "keepalive",
    "protocol",
    "tls",
    "retry",
    "health_check",
];

/// What a reading of one tree found out.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) file: PathBuf,
    pub(super) problems: RefCell<Vec<Problem>>,
    pub(super) refused: RefCell<HashSet<u32>>,
    pub(super) keys: Option<RefCell<Keys>>,
}

/// The keys of the serde types met while reading, indices as `[]`, names of the operator as `NAME`.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Keys {
    /// Those the types have.
    pub known: BTreeSet<String>,
    /// Those the file has.
    pub written: BTreeSet<String>,
}

/// Where in the tree reading is.
pub(super) enum At<'a> {
    Root,
    Key(&'a At<'a>, &'a str),
    /// A key of the operator's choice.
    Name(&'a At<'a>, &'a str),
    Item(&'a At<'a>, usize),
}

impl At<'_> {
    /// Whether this is a key of a route.
    fn is_in_a_route(&self) -> bool {
        matches!(self, At::Key(At::Item(At::Key(At::Root, "routes"), _), _))
    }

    /// The path with `[]` for indices and `NAME` for names.
    pub(super) fn pattern(&self) -> String {
        match self {
            At::Root => String::new(),
            At::Key(At::Root, key) => (*key).to_owned(),
            At::Key(parent, key) => format!("{}.{key}", parent.pattern()),
            At::Name(parent, _) => format!("{}.NAME", parent.pattern()),
            At::Item(parent, _) => format!("{}[]", parent.pattern()),
        }
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            At::Root => Ok(()),
            At::Key(At::Root, key) | At::Name(At::Root, key) => write!(f, "{key}"),
            At::Key(parent, key) | At::Name(parent, key) => write!(f, "{parent}.{key}"),
            At::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// The deserializer's error.
#[derive(Debug)]
pub(super) enum Fault {
    /// Its problem was recorded and the place refused.
    Recorded,
    /// Too many problems: give up.
    Full,
    /// Not recorded yet.
    Value { reason: String, hint: Option<String> },
    /// A key that must be there is not.
    Missing(&'static str),
    /// A key that is not known in a mapping read by a visitor of the types themselves.
    Unknown(String, &'static [&'static str]),
}

impl Fault {
    pub(super) fn new(reason: impl Into<String>, hint: Option<&str>) -> Fault {
        Fault::Value { reason: reason.into(), hint: hint.map(str::to_owned) }
    }

    pub(super) fn expected(what: &str, node: &Node, hint: Option<&str>) -> Fault {
        Fault::new(format!("expected {what}, found {}", node.describe()), hint)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Recorded => f.write_str(RECORDED),
            Fault::Full => f.write_str("too many problems"),
            Fault::Value { reason, .. } => f.write_str(reason),
            Fault::Missing(key) => write!(f, "the key `{key}` is missing"),
            Fault::Unknown(key, _) => write!(f, "unknown key {}", quoted(key)),
        }
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        let message = message.to_string();
        match message.split_once(HINT_MARK) {
            Some((reason, hint)) => Fault::new(reason, Some(hint)),
            None => Fault::new(message, None),
        }
    }

    fn invalid_type(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let found = match found {
            de::Unexpected::Bool(value) => format!("`{value}`"),
            de::Unexpected::Unsigned(value) => format!("the number {value}"),
            de::Unexpected::Signed(value) => format!("the number {value}"),
            de::Unexpected::Float(value) => format!("the number {value}"),
            de::Unexpected::Str(text) => format!("the text {}", quoted(text)),
            de::Unexpected::Seq => "a list".to_owned(),
            de::Unexpected::Map => "keys and values".to_owned(),
            other => other.to_string(),
        };
        Fault::new(format!("expected {expected}, found {found}"), None)
    }

    fn missing_field(field: &'static str) -> Self {
        Fault::Missing(field)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Fault::Unknown(field.to_owned(), expected)
    }
}

impl Reading {
    pub(super) fn is_refused(&self, node: &Node) -> bool {
        self.refused.borrow().contains(&node.id)
    }

    pub(super) fn refuse(&self, node: &Node) {
        self.refused.borrow_mut().insert(node.id);
    }

    /// Records what is wrong with `node` and refuses it, so that the next attempt goes without it.
    pub(super) fn record(&self, node: &Node, line: u32, at: &At<'_>, fault: Fault) -> Fault {
        let (reason, hint) = match fault {
            Fault::Recorded | Fault::Full => return fault,
            Fault::Missing(key) if self.explains_missing(node, key) => (None, None),
            Fault::Missing(key) => (Some(format!("the key `{key}` is missing")), None),
            // Parts of it were refused: what the rest lacks is a consequence.
            Fault::Value { .. } if self.has_refused_part(node) => (None, None),
            Fault::Value { reason, hint } => (Some(reason), hint),
            Fault::Unknown(key, known) => return self.unknown_key(&key, known, node, line, at),
        };
        self.refuse(node);
        match reason {
            Some(reason) => self.push(line, at, reason, hint),
            None => Fault::Recorded,
        }
    }

    pub(super) fn push(&self, line: u32, at: &At<'_>, reason: String, hint: Option<String>) -> Fault {
        let mut problems = self.problems.borrow_mut();
        let line = usize::try_from(line).ok().filter(|line| *line > 0);
        if problems.len() > MAX_PROBLEMS {
            return Fault::Full;
        }
        problems.push(Problem { file: self.file.clone(), line, path: at.to_string(), reason, hint });
        Fault::Recorded
    }

    pub(super) fn unknown_key(
        &self,
        key: &str,
        known: &[&str],
        node: &Node,
        line: u32,
        at: &At<'_>,
    ) -> Fault {
        self.refuse(node);
        let hint = match suggest::nearest(key, known.iter().copied()) {
            None if LATER.contains(&key) => Some("this version does not support it".to_owned()),
            _ if at.is_in_a_route() && OF_UPSTREAMS.contains(&key) => {
                Some("belongs under upstreams.NAME; the route names it: `upstream: NAME`".to_owned())
            }
            _ => suggest::hint(key, known),
        };
        self.push(line, at, format!("unknown key {}", quoted(key)), hint)
    }

    fn has_refused_part(&self, node: &Node) -> bool {
        match &node.value {
            Value::List(items) => items.iter().any(|item| self.is_refused(item)),
            Value::Map(entries) => entries.iter().any(|entry| self.is_refused(&entry.value)),
            _ => false,
        }
    }

    /// Whether a key that is missing was written, but refused or misspelt.
    fn explains_missing(&self, node: &Node, key: &str) -> bool {
        let Value::Map(entries) = &node.value else { return false };
        entries
            .iter()
            .any(|entry| self.is_refused(&entry.value) && suggest::nearest(&entry.key.text, [key]).is_some())
    }

    /// Refuses, in the whole tree, keys written twice, merge keys, and values of no use to any type.
    pub(super) fn refuse_odd_keys(&self, node: &Node, at: &At<'_>) {
        match &node.value {
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let at = At::Item(at, index);
                    self.refuse_odd_value(item, item.line, &at);
                    self.refuse_odd_keys(item, &at);
                }
            }
            Value::Map(entries) => {
                let mut lines = HashMap::new();
                for entry in entries {
                    let at = At::Key(at, &entry.key.text);
                    if &*entry.key.text == "<<" {
                        self.refuse(&entry.value);
                        let hint = "write the keys out; `*alias` for a whole value works";
                        self.push(
                            entry.line,
                            &at,
                            "YAML merge keys are not supported".into(),
                            Some(hint.into()),
                        );
                        continue;
                    }
                    if let Some(first) = lines.insert((&*entry.key.text, entry.key.is_text), entry.line) {
                        lines.insert((&*entry.key.text, entry.key.is_text), first);
                        self.refuse(&entry.value);
                        let hint = (first > 0).then(|| format!("first on line {first}; remove one of them"));
                        self.push(
                            entry.line,
                            &at,
                            format!("duplicate key {}", quoted(&entry.key.text)),
                            hint,
                        );
                        continue;
                    }
                    self.refuse_odd_value(&entry.value, entry.line, &at);
                    self.refuse_odd_keys(&entry.value, &at);
                }
            }
            _ => {}
        }
    }

    fn refuse_odd_value(&self, node: &Node, line: u32, at: &At<'_>) {
        let (reason, hint) = match &node.value {
            Value::Null => ("has no value", "write one, or remove the key; an empty list is []"),
            Value::Tagged(_) => ("YAML tags are not supported", "write the plain value"),
            _ => return,
        };
        self.refuse(node);
        self.push(line, at, reason.to_owned(), Some(hint.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_an_upstream_are_those_of_its_type() {
        let keys = super::super::load::keys("upstreams: { app: { endpoints: [127.0.0.1:1] } }");
        for key in OF_UPSTREAMS {
            assert!(keys.known.contains(&format!("upstreams.NAME.{key}")), "{key}");
        }
    }
}
