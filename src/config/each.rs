//! Lists and mappings that are read to their end although some of their elements are wrong.
//!
//! The reader (`super::read`) has recorded what is wrong with an element by the time its error
//! arrives here, and offers the same element again without its bad parts, or the next one. With any
//! other deserializer the first error ends the list, so that a bad element is never dropped unseen.

use super::record::RECORDED;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// `deserialize_with` for a list.
pub(super) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(List(PhantomData))
}

/// `deserialize_with` for a list whose absence means something else than an empty one.
pub(super) fn written_list<'de, D, T>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    list(deserializer).map(Some)
}

/// `deserialize_with` for a mapping from names of the operator's choice.
pub(super) fn map<'de, D, T>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_map(Map(PhantomData))
}

fn was_recorded(error: &impl Error) -> bool {
    error.to_string() == RECORDED
}

struct List<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Vec<T>, A::Error> {
        let mut items = Vec::new();
        loop {
            match access.next_element() {
                Ok(Some(item)) => items.push(item),
                Ok(None) => return Ok(items),
                Err(error) if was_recorded(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

struct Map<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Map<T> {
    type Value = BTreeMap<String, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("keys and values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<BTreeMap<String, T>, A::Error> {
        let mut entries = BTreeMap::new();
        loop {
            match access.next_entry() {
                // Two equal keys cannot come from the reader; from any other they must not merge.
                Ok(Some((key, _))) if entries.contains_key(&key) => {
                    return Err(A::Error::custom(format_args!("duplicate key `{key}`")));
                }
                Ok(Some((key, value))) => {
                    entries.insert(key, value);
                }
                Ok(None) => return Ok(entries),
                Err(error) if was_recorded(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
