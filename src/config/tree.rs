//! One YAML document as a tree: every value with the line it stands on, every key as often as it was
//! written. Does not know which keys there should be.

use super::error::quoted;
use saphyr_parser::{Event, Parser, Span};
use serde::de::{DeserializeSeed, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor};
use serde::{Deserializer, de::IgnoredAny};
use std::cell::Cell;
use std::fmt;

/// Most values a file may have, aliases followed; a million inline prefixes fit twice.
pub(super) const MAX_NODES: u32 = 2_000_000;

/// A value.
#[derive(Debug)]
pub(super) struct Node {
    /// Unique in its tree.
    pub id: u32,
    /// From 1; 0 when unknown.
    pub line: u32,
    /// What it is.
    pub value: Value,
}

/// What a value is; numbers keep the text they were written as.
#[derive(Debug)]
pub(super) enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i128, Box<str>),
    /// Any other number.
    Float(f64, Box<str>),
    /// Text.
    Text(Box<str>),
    /// A list.
    List(Vec<Node>),
    /// Keys and values, in file order.
    Map(Vec<Entry>),
    /// A value with a tag, such as `!secret x`.
    Tagged(Box<str>),
}

/// One key of a mapping and its value.
#[derive(Debug)]
pub(super) struct Entry {
    /// The key.
    pub key: Key,
    /// The line the key stands on, from 1; 0 when unknown.
    pub line: u32,
    /// Its value.
    pub value: Node,
}

/// A key.
#[derive(Debug)]
pub(super) struct Key {
    /// As written, or what YAML made of it.
    pub text: Box<str>,
    /// Whether YAML reads it as text; `1`, `true` and `[a]` are not.
    pub is_text: bool,
}

impl Node {
    /// Reads a tree from any self-describing format; lines are unknown until [`Node::mark_lines`].
    pub fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        NodeSeed(&Cell::new(0)).deserialize(deserializer)
    }

    /// Fills in the lines, and the numbers as they were written, by walking `text`, the YAML this tree was
    /// read from, a second time.
    ///
    /// # Errors
    /// The line where that walk finds something else than the first: the text has two meanings.
    pub fn mark_lines(&mut self, text: &str) -> Result<(), usize> {
        let mut marks = Marks { parser: Parser::new_from_str(text), line: 1 };
        marks.node(self).ok_or(marks.line as usize)
    }

    /// What it is, for "found …".
    pub fn describe(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Int(_, text) | Value::Float(_, text) => format!("the number {}", quoted(text)),
            Value::Text(text) => format!("the text {}", quoted(text)),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "keys and values".to_owned(),
            Value::Tagged(tag) => format!("a value with the tag {}", quoted(tag)),
        }
    }

    fn stamp(&mut self, line: u32) {
        self.line = line;
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.stamp(line)),
            Value::Map(entries) => entries.iter_mut().for_each(|entry| {
                entry.line = line;
                entry.value.stamp(line);
            }),
            _ => {}
        }
    }
}

/// The second walk. `None` ends it.
struct Marks<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    /// Where the walk is.
    line: u32,
}

impl<'a> Marks<'a> {
    fn next(&mut self) -> Option<(Event<'a>, u32)> {
        loop {
            let (event, span): (Event<'a>, Span) = self.parser.next_event()?.ok()?;
            match event {
                Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => {}
                Event::StreamEnd | Event::DocumentEnd => return None,
                event => {
                    self.line = u32::try_from(span.start.line()).unwrap_or(0);
                    return Some((event, self.line));
                }
            }
        }
    }

    fn node(&mut self, node: &mut Node) -> Option<()> {
        let (event, line) = self.next()?;
        node.line = line;
        match (event, &mut node.value) {
            // The parts of an alias are where the alias is: that is the place to change.
            (Event::Alias(_), _) => node.stamp(line),
            (Event::Scalar(text, ..), Value::Int(_, written) | Value::Float(_, written)) => {
                *written = text.into_owned().into_boxed_str();
            }
            (Event::Scalar(..), Value::List(_) | Value::Map(_)) => return None,
            (Event::Scalar(..), _) => {}
            // A tag on more than a scalar: refused as a whole.
            (Event::SequenceStart(..) | Event::MappingStart(..), Value::Tagged(_)) => self.skip()?,
            (Event::SequenceStart(..), Value::List(items)) => {
                for item in items {
                    self.node(item)?;
                }
                matches!(self.next()?.0, Event::SequenceEnd).then_some(())?;
            }
            (Event::MappingStart(..), Value::Map(entries)) => {
                for entry in entries {
                    let (key, line) = self.next()?;
                    entry.line = line;
                    match key {
                        Event::Scalar(..) | Event::Alias(_) => {}
                        // A list as a key is no key there could be, and refused.
                        Event::SequenceStart(..) | Event::MappingStart(..) => self.skip()?,
                        _ => return None,
                    }
                    self.node(&mut entry.value)?;
                }
                matches!(self.next()?.0, Event::MappingEnd).then_some(())?;
            }
            _ => return None,
        }
        Some(())
    }

    /// To the end of the list or mapping that has begun.
    fn skip(&mut self) -> Option<()> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.next()?.0 {
                Event::SequenceStart(..) | Event::MappingStart(..) => depth += 1,
                Event::SequenceEnd | Event::MappingEnd => depth -= 1,
                _ => {}
            }
        }
        Some(())
    }
}

/// Builds one node and counts it.
#[derive(Clone, Copy)]
struct NodeSeed<'a>(&'a Cell<u32>);

impl NodeSeed<'_> {
    fn node<E: Error>(self, value: Value) -> Result<Node, E> {
        let id = self.0.get();
        if id >= MAX_NODES {
            return Err(E::custom(format_args!(
                "more than {MAX_NODES} values, counting what aliases repeat"
            )));
        }
        self.0.set(id + 1);
        Ok(Node { id, line: 0, value })
    }
}

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        self.node(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Node, E> {
        self.node(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        self.node(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        self.visit_i128(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        self.visit_i128(value.into())
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Node, E> {
        self.node(Value::Int(value, value.to_string().into()))
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Node, E> {
        self.visit_i128(i128::try_from(value).unwrap_or(i128::MAX))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        self.node(Value::Float(value, value.to_string().into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Node, E> {
        self.node(Value::Text(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut node = self.node(Value::Null)?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(self)? {
            items.push(item);
        }
        node.value = Value::List(items);
        Ok(node)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut node = self.node(Value::Null)?;
        let mut entries = Vec::new();
        while let Some(key) = access.next_key_seed(self)? {
            let value = access.next_value_seed(self)?;
            entries.push(Entry { key: Key::from(key), line: 0, value });
        }
        node.value = Value::Map(entries);
        Ok(node)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<Node, A::Error> {
        let (tag, content) = access.variant::<String>()?;
        content.newtype_variant::<IgnoredAny>()?;
        self.node(Value::Tagged(tag.into()))
    }
}

impl From<Node> for Key {
    fn from(node: Node) -> Key {
        match node.value {
            Value::Text(text) => Key { text, is_text: true },
            Value::Int(_, text) | Value::Float(_, text) => Key { text, is_text: false },
            Value::Bool(value) => Key { text: value.to_string().into(), is_text: false },
            _ => Key { text: node.describe().into(), is_text: false },
        }
    }
}
