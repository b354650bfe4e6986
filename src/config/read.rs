//! From a tree to the serde types, recording every problem on the way instead of stopping at the
//! first: a serde deserializer that knows where it is.
//!
//! A value that is wrong is recorded, then treated as if it had not been written (*refused*), and
//! what held it is read again without it, until nothing is wrong. Lists and mappings of the types
//! (`super::each`) are read to their end on the way. Does not know which keys there are: the types
//! do. What depends on more than one key is the business of `super::validate`.

use super::Problem;
use super::error::quoted;
use super::record::{At, Fault, Keys, Reading};
use super::suggest;
use super::tree::{Entry, Node, Value};
use serde::Deserialize;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use std::cell::RefCell;
use std::collections::HashSet;
use std::path::PathBuf;

/// What reading a tree gave.
pub(super) struct Outcome<T> {
    /// `None` when the whole document is of a wrong kind.
    pub value: Option<T>,
    /// Everything found wrong, in the order of reading.
    pub problems: Vec<Problem>,
    /// Ids of the nodes that are not in `value`.
    pub refused: HashSet<u32>,
    /// The keys met, if asked for.
    pub keys: Keys,
}

/// Reads `root` as a `T`; `want_keys` notes the keys met too.
pub(super) fn read<T: for<'de> Deserialize<'de>>(file: PathBuf, root: &Node, want_keys: bool) -> Outcome<T> {
    let keys = want_keys.then(RefCell::default);
    let reading = Reading { file, keys, ..Reading::default() };
    reading.refuse_odd_keys(root, &At::Root);
    let value = loop {
        let before = reading.refused.borrow().len();
        let fault = match T::deserialize(De { reading: &reading, node: root, at: &At::Root }) {
            Ok(value) => break Some(value),
            Err(fault) => reading.record(root, root.line, &At::Root, fault),
        };
        let progress = reading.refused.borrow().len() > before && !reading.is_refused(root);
        if !progress || !matches!(fault, Fault::Recorded) {
            break None;
        }
    };
    let (problems, refused) = (reading.problems.into_inner(), reading.refused.into_inner());
    Outcome { value, problems, refused, keys: reading.keys.map(RefCell::into_inner).unwrap_or_default() }
}

/// The deserializer of one node.
#[derive(Clone, Copy)]
struct De<'a> {
    reading: &'a Reading,
    node: &'a Node,
    at: &'a At<'a>,
}

impl De<'_> {
    fn integer(&self, min: i128, max: i128) -> Result<i128, Fault> {
        match &self.node.value {
            // `0x50` and `0o17` are numbers to YAML, and mistakes to most readers.
            Value::Int(_, text) if text.starts_with(['0', '+']) && text.len() > 1 => {
                Err(Fault::expected("a decimal number", self.node, None))
            }
            Value::Int(value, _) if (min..=max).contains(value) => Ok(*value),
            Value::Int(value, _) if *value < min => Err(Fault::new(format!("{value} is below {min}"), None)),
            Value::Int(value, _) => Err(Fault::new(format!("{value} is above {max}"), None)),
            Value::Text(text) if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
                let trimmed = text.trim_start_matches('0');
                let hint = format!("write {} without quotes", if trimmed.is_empty() { "0" } else { trimmed });
                let hint = if text.starts_with('0') {
                    hint.replace("quotes", "leading zeros or quotes")
                } else {
                    hint
                };
                Err(Fault::expected("a number", self.node, Some(&hint)))
            }
            _ => Err(Fault::expected("a whole number", self.node, None)),
        }
    }

    fn text(&self) -> Result<&str, Fault> {
        match &self.node.value {
            Value::Text(text) => Ok(text),
            Value::Int(_, text) | Value::Float(_, text) => {
                Err(Fault::expected("text", self.node, Some(&format!("put it in quotes: \"{text}\""))))
            }
            Value::Bool(value) => {
                Err(Fault::expected("text", self.node, Some(&format!("put it in quotes: \"{value}\""))))
            }
            _ => Err(Fault::expected("text", self.node, None)),
        }
    }

    /// The scalar as written, for words that YAML may take for something else (`1.2`).
    fn word(&self) -> Option<String> {
        match &self.node.value {
            Value::Text(text) | Value::Int(_, text) | Value::Float(_, text) => Some(text.to_string()),
            Value::Bool(value) => Some(value.to_string()),
            _ => None,
        }
    }

    fn entries(&self) -> Result<&[Entry], Fault> {
        match &self.node.value {
            Value::Map(entries) => Ok(entries),
            _ => Err(Fault::expected(
                "keys and values",
                self.node,
                Some("write `key: value`, indented below it"),
            )),
        }
    }
}

macro_rules! integers {
    ($($method:ident $visit:ident $type:ty),* $(,)?) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            let value = self.integer(<$type>::MIN.into(), <$type>::MAX.into())?;
            match <$type>::try_from(value) {
                Ok(value) => visitor.$visit(value),
                Err(_) => Err(Fault::expected("a whole number", self.node, None)),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for De<'_> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(value, text) => match (u64::try_from(*value), i64::try_from(*value)) {
                _ if text.starts_with(['0', '+']) && text.len() > 1 => visitor.visit_str(text),
                (Ok(value), _) => visitor.visit_u64(value),
                (_, Ok(value)) => visitor.visit_i64(value),
                _ => visitor.visit_str(text),
            },
            Value::Float(value, _) => visitor.visit_f64(*value),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(items) => visitor.visit_seq(List { de: self, items, next: 0 }),
            Value::Map(entries) => visitor.visit_map(Map::new(self, entries, false)),
            Value::Tagged(_) => Err(Fault::expected("a plain value", self.node, None)),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let hint = match &self.node.value {
            Value::Bool(value) => return visitor.visit_bool(*value),
            Value::Text(text) => match text.to_ascii_lowercase().as_str() {
                "yes" | "on" | "y" | "true" => Some("write true"),
                "no" | "off" | "n" | "false" => Some("write false"),
                _ => None,
            },
            _ => None,
        };
        Err(Fault::expected("true or false", self.node, hint))
    }

    integers! {
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64,
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_str(self.text()?)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_str(self.text()?)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.node.value {
            Value::List(items) => visitor.visit_seq(List { de: self, items, next: 0 }),
            Value::Text(text) if text.len() <= 60 && !text.contains(['"', '\n', '\\']) => {
                Err(Fault::expected("a list", self.node, Some(&format!("write [\"{text}\"]"))))
            }
            _ => Err(Fault::expected("a list", self.node, None)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        let entries = self.entries()?;
        for entry in entries.iter().filter(|entry| !entry.key.is_text) {
            if !self.reading.is_refused(&entry.value) {
                self.reading.refuse(&entry.value);
                let reason = format!("the name {} is not text", quoted(&entry.key.text));
                let hint = format!("put it in quotes: \"{}\"", entry.key.text);
                let at = At::Name(self.at, &entry.key.text);
                self.reading.push(entry.line, &at, reason, Some(hint));
            }
        }
        visitor.visit_map(Map::new(self, entries, true))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let entries = self.entries()?;
        for entry in entries {
            let at = At::Key(self.at, &entry.key.text);
            if !fields.contains(&&*entry.key.text) && !self.reading.is_refused(&entry.value) {
                self.reading.unknown_key(&entry.key.text, fields, &entry.value, entry.line, &at);
            }
        }
        if let Some(keys) = &self.reading.keys {
            let mut keys = keys.borrow_mut();
            keys.known.extend(fields.iter().map(|field| At::Key(self.at, field).pattern()));
            keys.written.extend(entries.iter().map(|entry| At::Key(self.at, &entry.key.text).pattern()));
        }
        visitor.visit_map(Map::new(self, entries, false))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let words = variants.join(", ");
        let Some(word) = self.word() else {
            return Err(Fault::expected(&format!("one of {words}"), self.node, None));
        };
        match variants.iter().find(|variant| variant.eq_ignore_ascii_case(&word)) {
            Some(variant) => visitor.visit_enum((*variant).into_deserializer()),
            None => {
                let hint = suggest::meant(&word, variants.iter().copied());
                let hint = hint.map(|variant| format!("did you mean `{variant}`?"));
                let reason = format!("{} is not one of {words}", quoted(&word));
                Err(Fault::Value { reason, hint })
            }
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct identifier i128 u128
    }
}

/// The elements of a list. One that failed is offered again, unless it was refused.
struct List<'a> {
    de: De<'a>,
    items: &'a [Node],
    next: usize,
}

impl<'de> SeqAccess<'de> for List<'_> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        let reading = self.de.reading;
        while self.items.get(self.next).is_some_and(|item| reading.is_refused(item)) {
            self.next += 1;
        }
        let Some(node) = self.items.get(self.next) else { return Ok(None) };
        let at = At::Item(self.de.at, self.next);
        match seed.deserialize(De { reading, node, at: &at }) {
            Ok(value) => {
                self.next += 1;
                Ok(Some(value))
            }
            Err(fault) => Err(reading.record(node, node.line, &at, fault)),
        }
    }
}

/// The entries of a mapping. One that failed is offered again, unless it was refused.
struct Map<'a> {
    de: De<'a>,
    entries: &'a [Entry],
    next: usize,
    /// Whether the operator chose the keys.
    names: bool,
}

impl<'a> Map<'a> {
    fn new(de: De<'a>, entries: &'a [Entry], names: bool) -> Self {
        Map { de, entries, next: 0, names }
    }

    fn at<'b>(&self, entry: &'b Entry) -> At<'b>
    where
        'a: 'b,
    {
        match self.names {
            true => At::Name(self.de.at, &entry.key.text),
            false => At::Key(self.de.at, &entry.key.text),
        }
    }
}

impl<'de> MapAccess<'de> for Map<'_> {
    type Error = Fault;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Fault> {
        let reading = self.de.reading;
        while self.entries.get(self.next).is_some_and(|entry| reading.is_refused(&entry.value)) {
            self.next += 1;
        }
        let Some(entry) = self.entries.get(self.next) else { return Ok(None) };
        let key: de::value::StrDeserializer<'_, Fault> = (&*entry.key.text).into_deserializer();
        seed.deserialize(key)
            .map(Some)
            .map_err(|fault| reading.record(&entry.value, entry.line, &self.at(entry), fault))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let reading = self.de.reading;
        let Some(entry) = self.entries.get(self.next) else {
            return Err(Fault::new("a value without its key", None));
        };
        let at = self.at(entry);
        let value = seed
            .deserialize(De { reading, node: &entry.value, at: &at })
            .map_err(|fault| reading.record(&entry.value, entry.line, &at, fault))?;
        self.next += 1;
        Ok(value)
    }
}
