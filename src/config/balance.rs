//! `balance:` of an upstream, how an endpoint is chosen.

use super::error::{ValueError, quoted};
use super::suggest;
use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// How an endpoint is chosen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BalanceConfig {
    /// In turn, smoothly by weight.
    #[default]
    RoundRobin,
    /// At random, by weight.
    Random,
    /// The one with the fewest requests in flight for its weight.
    LeastRequests,
    /// Of two at random the one that will answer sooner.
    P2c,
    /// `{ hash: { by: … } }`: always the same one for the same key.
    Hash(HashBy),
}

/// What is hashed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashBy {
    /// The client's address.
    Client,
    /// The path, without the query.
    Path,
    /// `{ header: x-tenant }`: the value of a header.
    Header(String),
    /// `{ cookie: session }`: the value of a cookie.
    Cookie(String),
}

const WORDS: [(&str, BalanceConfig); 4] = [
    ("round_robin", BalanceConfig::RoundRobin),
    ("random", BalanceConfig::Random),
    ("least_requests", BalanceConfig::LeastRequests),
    ("p2c", BalanceConfig::P2c),
];
const KEYS: [(&str, HashBy); 2] = [("client", HashBy::Client), ("path", HashBy::Path)];

/// One of some words, whatever its case. `long` = what else there is, for the message.
fn word<T: Clone>(text: &str, words: &[(&'static str, T)], long: &str) -> Result<T, ValueError> {
    if let Some((_, value)) = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)) {
        return Ok(value.clone());
    }
    let known = || words.iter().map(|(word, _)| *word);
    let list = known().collect::<Vec<_>>().join(", ");
    let error = ValueError::new(format!("{} is not one of {list}, {long}", quoted(text)));
    Err(match suggest::meant(text, known()) {
        Some(near) => error.with_hint(format!("did you mean `{near}`?")),
        None => error,
    })
}

impl Serialize for BalanceConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            BalanceConfig::Hash(by) => {
                BTreeMap::from([("hash", BTreeMap::from([("by", by)]))]).serialize(serializer)
            }
            plain => {
                let known = WORDS.iter().find(|(_, value)| value == plain);
                serializer.serialize_str(known.map_or("", |(word, _)| word))
            }
        }
    }
}

impl Serialize for HashBy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            HashBy::Client => serializer.serialize_str("client"),
            HashBy::Path => serializer.serialize_str("path"),
            HashBy::Header(name) => BTreeMap::from([("header", name)]).serialize(serializer),
            HashBy::Cookie(name) => BTreeMap::from([("cookie", name)]).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for BalanceConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BalanceVisitor)
    }
}

impl<'de> Deserialize<'de> for HashBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ByVisitor)
    }
}

struct BalanceVisitor;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongBalance {
    hash: HashConfig,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HashConfig {
    by: HashBy,
}

impl<'de> Visitor<'de> for BalanceVisitor {
    type Value = BalanceConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy such as round_robin, or { hash: { by: client } }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<BalanceConfig, E> {
        word(text, &WORDS, "{ hash: { by: … } }").map_err(ValueError::into_serde)
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<BalanceConfig, A::Error> {
        let LongBalance { hash } = LongBalance::deserialize(MapAccessDeserializer::new(access))?;
        Ok(BalanceConfig::Hash(hash.by))
    }
}

struct ByVisitor;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongBy {
    header: Option<String>,
    cookie: Option<String>,
}

impl<'de> Visitor<'de> for ByVisitor {
    type Value = HashBy;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("client, path, { header: NAME } or { cookie: NAME }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<HashBy, E> {
        word(text, &KEYS, "{ header: NAME }, { cookie: NAME }").map_err(ValueError::into_serde)
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<HashBy, A::Error> {
        match LongBy::deserialize(MapAccessDeserializer::new(access))? {
            LongBy { header: Some(name), cookie: None } => Ok(HashBy::Header(name)),
            LongBy { header: None, cookie: Some(name) } => Ok(HashBy::Cookie(name)),
            _ => Err(A::Error::custom("needs either `header` or `cookie`")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> Result<BalanceConfig, String> {
        serde_json::from_str(yaml).map_err(|error| error.to_string())
    }

    #[test]
    fn every_policy_is_written_as_it_is_read() {
        for text in [
            r#""round_robin""#,
            r#""random""#,
            r#""least_requests""#,
            r#""p2c""#,
            r#"{"hash":{"by":"client"}}"#,
            r#"{"hash":{"by":"path"}}"#,
            r#"{"hash":{"by":{"header":"x-tenant"}}}"#,
            r#"{"hash":{"by":{"cookie":"session"}}}"#,
        ] {
            assert_eq!(serde_json::to_string(&read(text).unwrap()).unwrap(), text);
        }
    }

    #[test]
    fn what_is_no_policy_is_refused() {
        assert_eq!(read(r#""P2C""#), Ok(BalanceConfig::P2c));
        assert!(read(r#""least_conn""#).unwrap_err().contains("is not one of round_robin"));
        assert!(read(r#"{"hash":{"by":{}}}"#).unwrap_err().contains("either `header` or `cookie`"));
        assert!(read(r#"{"hash":{}}"#).is_err() && read("{}").is_err() && read("1").is_err());
    }
}
