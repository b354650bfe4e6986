//! `routes:`, which requests go where.

use super::access::{AccessConfig, CidrEntry};
use super::error::{ValueError, quoted};
use super::mirror::MirrorConfig;
use super::units::{ByteSize, HumanDuration};
use super::upstream::UpstreamTargetConfig;
use super::{EncodedSlash, each};
use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// One route: predicates, and exactly one target (`upstream`, `redirect` or `respond`).
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Metric label and log field; default: first host + path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Exact host names or one leading wildcard label (`*.example.com`, any depth); empty = any host.
    #[serde(default, deserialize_with = "each::list")]
    pub hosts: Vec<String>,
    /// Path predicate; `None` = any path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathConfig>,
    /// Methods; empty = any.
    #[serde(default, deserialize_with = "each::list")]
    pub methods: Vec<String>,
    /// Header predicates, all must hold. Names are case-insensitive.
    #[serde(default, deserialize_with = "each::map")]
    pub headers: BTreeMap<String, ValueMatchConfig>,
    /// Query parameter predicates, all must hold.
    #[serde(default, deserialize_with = "each::map")]
    pub query: BTreeMap<String, ValueMatchConfig>,
    /// Client address prefixes; empty = any client.
    #[serde(default, deserialize_with = "each::list")]
    pub client: Vec<CidrEntry>,
    /// Predicates on the certificate the client has shown.
    #[serde(default)]
    pub client_certificate: ClientCertificateConfig,
    /// What happens to `%2F` in its paths, in place of the global policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoded_slash: Option<EncodedSlash>,
    /// CIDR policy that applies after the global one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessConfig>,
    /// Timeouts of this route.
    #[serde(default)]
    pub timeouts: TimeoutsConfig,
    /// Limits of this route.
    #[serde(default)]
    pub limits: RouteLimitsConfig,
    /// Send to an upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<UpstreamTargetConfig>,
    /// Copy requests to another upstream as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorConfig>,
    /// Answer with a redirect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect: Option<RedirectConfig>,
    /// Answer with a fixed response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub respond: Option<RespondConfig>,
}

impl RouteConfig {
    /// The name as written or filled in by the loader; before that its default: first host + path.
    pub fn name(&self) -> Cow<'_, str> {
        match &self.name {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(self.default_name()),
        }
    }

    /// First host (`*` for any) + path, cut to what a metric label should be.
    pub fn default_name(&self) -> String {
        let host = self.hosts.first().map_or("*", String::as_str).to_ascii_lowercase();
        let path = match &self.path {
            Some(PathConfig::Prefix(path) | PathConfig::Exact(path) | PathConfig::Regex(path)) => path,
            None => "",
        };
        host.chars().chain(path.chars()).filter(|c| is_label_char(*c)).take(LONGEST_DEFAULT_NAME).collect()
    }
}

/// Leaves room for the suffix that tells equal default names apart.
const LONGEST_DEFAULT_NAME: usize = 120;

/// Whether a character may stand in a metric label: printable ASCII.
pub(super) fn is_label_char(c: char) -> bool {
    c == ' ' || c.is_ascii_graphic()
}

/// `path:` of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathConfig {
    /// `/v1`: the path itself and everything below it, cut at segment boundaries.
    Prefix(String),
    /// `{ exact: /v1 }`.
    Exact(String),
    /// `{ regex: "^/v[0-9]+/" }`; unanchored unless it says so.
    Regex(String),
}

/// A predicate on one header or query value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueMatchConfig {
    /// `name: value`: equal to it.
    Exact(String),
    /// `{ regex: … }`; unanchored unless it says so.
    Regex(String),
    /// `{ present: true }` (or `false`: absent).
    Present(bool),
}

/// `client_certificate:` of a route: predicates on what the handshake verified. All must hold; a
/// client without a certificate has no value for any of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientCertificateConfig {
    /// The subject, as RFC 4514 writes names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<ValueMatchConfig>,
    /// Any of the alternative names: `DNS:…`, `URI:…` or `email:…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub san: Option<ValueMatchConfig>,
    /// SHA-256 of the certificate, hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<ValueMatchConfig>,
}

impl ClientCertificateConfig {
    /// The predicates that were written, with their keys.
    pub fn written(&self) -> impl Iterator<Item = (&'static str, &ValueMatchConfig)> {
        [("subject", &self.subject), ("san", &self.san), ("fingerprint", &self.fingerprint)]
            .into_iter()
            .filter_map(|(key, wanted)| Some((key, wanted.as_ref()?)))
    }
}

/// `timeouts:` of a route, all about its upstream.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutsConfig {
    /// TCP and TLS connect.
    pub connect: HumanDuration,
    /// From the request sent to the response head.
    pub response: HumanDuration,
    /// Between two reads of a response body.
    pub idle: HumanDuration,
    /// How long an upgraded connection may be silent both ways.
    pub websocket_idle: HumanDuration,
}

impl Default for TimeoutsConfig {
    fn default() -> Self {
        TimeoutsConfig {
            connect: HumanDuration::secs(2),
            response: HumanDuration::secs(30),
            idle: HumanDuration::secs(60),
            websocket_idle: HumanDuration::secs(3600),
        }
    }
}

/// `limits:` of a route.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouteLimitsConfig {
    /// Largest request body, in place of the global one; 0 = no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<ByteSize>,
}

/// `redirect:`, an answer with a Location.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RedirectConfig {
    /// Template with `{scheme}`, `{host}`, `{path}`, `{query}` and `{path_and_query}`.
    pub to: String,
    /// 301, 302, 303, 307 or 308.
    #[serde(default = "permanent")]
    pub status: u16,
}

fn permanent() -> u16 {
    308
}

/// `respond:`, a fixed answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RespondConfig {
    /// 200 to 599.
    #[serde(default = "ok")]
    pub status: u16,
    /// The body as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Or a file, read when the configuration is compiled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_file: Option<PathBuf>,
    /// Response headers; content-length and connection are ours.
    #[serde(default, deserialize_with = "each::map")]
    pub headers: BTreeMap<String, String>,
}

fn ok() -> u16 {
    200
}

impl Serialize for PathConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            PathConfig::Prefix(prefix) => serializer.serialize_str(prefix),
            PathConfig::Exact(path) => BTreeMap::from([("exact", path)]).serialize(serializer),
            PathConfig::Regex(regex) => BTreeMap::from([("regex", regex)]).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for PathConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PathVisitor)
    }
}

struct PathVisitor;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongPath {
    exact: Option<String>,
    regex: Option<String>,
}

impl<'de> Visitor<'de> for PathVisitor {
    type Value = PathConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a path such as /v1, { exact: /v1 } or { regex: … }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PathConfig, E> {
        if text.starts_with('/') {
            return Ok(PathConfig::Prefix(text.to_owned()));
        }
        let error = ValueError::new(format!("{} does not begin with /", quoted(text)));
        let hint = match text.starts_with(['^', '*', '~']) {
            true => format!("for a regular expression write {{ regex: \"{text}\" }}"),
            false => format!("write /{text}"),
        };
        Err(error.with_hint(hint).into_serde())
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<PathConfig, A::Error> {
        match LongPath::deserialize(MapAccessDeserializer::new(access))? {
            LongPath { exact: Some(path), regex: None } => Ok(PathConfig::Exact(path)),
            LongPath { exact: None, regex: Some(regex) } => Ok(PathConfig::Regex(regex)),
            _ => Err(A::Error::custom("needs either `exact` or `regex`")),
        }
    }
}

impl Serialize for ValueMatchConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ValueMatchConfig::Exact(value) => serializer.serialize_str(value),
            ValueMatchConfig::Regex(regex) => BTreeMap::from([("regex", regex)]).serialize(serializer),
            ValueMatchConfig::Present(present) => {
                BTreeMap::from([("present", present)]).serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for ValueMatchConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueMatchVisitor)
    }
}

struct ValueMatchVisitor;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongValueMatch {
    regex: Option<String>,
    present: Option<bool>,
}

impl ValueMatchVisitor {
    fn refuse<E: Error>(found: impl fmt::Display) -> E {
        let error = ValueError::new(format!("expected text, found `{found}`"));
        error.with_hint(format!("put it in quotes: \"{found}\"")).into_serde()
    }
}

impl<'de> Visitor<'de> for ValueMatchVisitor {
    type Value = ValueMatchConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the exact value, { regex: … } or { present: true }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ValueMatchConfig, E> {
        Ok(ValueMatchConfig::Exact(text.to_owned()))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<ValueMatchConfig, E> {
        Err(Self::refuse(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<ValueMatchConfig, E> {
        Err(Self::refuse(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<ValueMatchConfig, E> {
        Err(Self::refuse(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<ValueMatchConfig, E> {
        // What was written, such as 1.50, is not known here.
        let error = ValueError::new(format!("expected text, found the number {value}"));
        Err(error.with_hint("put the value in quotes").into_serde())
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<ValueMatchConfig, A::Error> {
        match LongValueMatch::deserialize(MapAccessDeserializer::new(access))? {
            LongValueMatch { regex: Some(regex), present: None } => Ok(ValueMatchConfig::Regex(regex)),
            LongValueMatch { regex: None, present: Some(present) } => Ok(ValueMatchConfig::Present(present)),
            _ => Err(A::Error::custom("needs either `regex` or `present`")),
        }
    }
}
