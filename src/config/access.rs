//! `access:`, who may talk to us.

use super::each;
use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::path::PathBuf;

pub use super::cidr::Cidr;

/// A CIDR policy, global or of one route.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessConfig {
    /// Who may name the client in X-Forwarded-For or Forwarded. Only in the global policy.
    #[serde(deserialize_with = "each::list")]
    pub trusted_proxies: Vec<CidrEntry>,
    /// Prefixes let in; `None` when the key is left out.
    #[serde(deserialize_with = "each::written_list", skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<CidrEntry>>,
    /// Prefixes kept out.
    #[serde(deserialize_with = "each::list")]
    pub deny: Vec<CidrEntry>,
    /// When nothing matches; if left out: deny when `allow` is present (even empty), else allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<DefaultAction>,
    /// What a denied request gets.
    pub on_deny: OnDeny,
}

impl AccessConfig {
    /// What happens to a client no prefix holds: as written, or deny when `allow` is present.
    pub fn default_action(&self) -> DefaultAction {
        match (self.default, &self.allow) {
            (Some(action), _) => action,
            (None, Some(_)) => DefaultAction::Deny,
            (None, None) => DefaultAction::Allow,
        }
    }
}

/// One element of a CIDR list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum CidrEntry {
    /// Written inline.
    Inline(Cidr),
    /// `{ file: … }`: one CIDR a line, `#` starts a comment.
    File {
        /// Relative to the file that names it.
        file: PathBuf,
        /// Whether it may list nothing.
        #[serde(skip_serializing_if = "EmptyList::is_refuse")]
        empty: EmptyList,
    },
}

/// What a list file that lists nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EmptyList {
    /// A mistake, such as a download that failed.
    #[default]
    Refuse,
    /// What it says.
    Allow,
}

impl EmptyList {
    fn is_refuse(&self) -> bool {
        *self == EmptyList::Refuse
    }
}

/// What happens to a client no prefix holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DefaultAction {
    /// It may come in.
    Allow,
    /// It may not.
    Deny,
}

/// What a denied request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDeny {
    /// 403 with a page.
    #[default]
    Respond,
    /// The connection is closed without an answer.
    Close,
}

impl<'de> Deserialize<'de> for CidrEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

struct EntryVisitor;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEntry {
    file: PathBuf,
    #[serde(default)]
    empty: EmptyList,
}

impl<'de> Visitor<'de> for EntryVisitor {
    type Value = CidrEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address prefix such as 10.0.0.0/8, or { file: … }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<CidrEntry, E> {
        text.parse().map(CidrEntry::Inline).map_err(super::ValueError::into_serde)
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<CidrEntry, A::Error> {
        let entry = FileEntry::deserialize(MapAccessDeserializer::new(access))?;
        Ok(CidrEntry::File { file: entry.file, empty: entry.empty })
    }
}
