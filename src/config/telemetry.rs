//! `access_log:` and `log:`.

use super::access::Cidr;
use super::each;
use super::error::{ValueError, quoted};
use super::suggest;
use super::text;
use super::units::ByteSize;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::path::PathBuf;

/// `access_log:`, one record per request.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLogConfig {
    /// Where records go.
    pub output: AccessLogOutput,
    /// How a record is written.
    pub format: AccessLogFormat,
    /// Records that are not written; each list alone excludes.
    pub exclude: AccessLogExcludeConfig,
    /// Values replaced by `-redacted-`.
    pub redact: AccessLogRedactConfig,
}

/// Where access records go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AccessLogOutput {
    /// `stdout`.
    #[default]
    Stdout,
    /// `off`.
    Off,
    /// A file, appended to; reopened on USR1.
    File(PathBuf),
}

/// How an access record is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AccessLogFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// The Apache combined format.
    Combined,
    /// Text with `{key}` placeholders, keys as in the JSON record.
    Template(String),
}

/// Which requests leave no record.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLogExcludeConfig {
    /// Client addresses.
    #[serde(deserialize_with = "each::list")]
    pub clients: Vec<Cidr>,
    /// Exact request paths.
    #[serde(deserialize_with = "each::list")]
    pub paths: Vec<String>,
    /// Response statuses.
    #[serde(deserialize_with = "each::list")]
    pub status: Vec<u16>,
}

/// Which values are never written.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLogRedactConfig {
    /// Query parameters whose value is hidden.
    #[serde(deserialize_with = "each::list")]
    pub query: Vec<String>,
    /// Request headers whose value is hidden wherever a format would show it.
    #[serde(deserialize_with = "each::list")]
    pub headers: Vec<String>,
}

/// `log:`, the process's own log on stderr.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Least severe level written.
    pub level: LogLevel,
    /// How a line is written.
    pub format: LogFormat,
    /// Memory for lines of this log and of the access log that nobody has taken yet.
    pub memory: ByteSize,
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig { level: LogLevel::default(), format: LogFormat::default(), memory: ByteSize::mib(64) }
    }
}

/// A severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Only errors.
    Error,
    /// And warnings.
    Warn,
    /// And what the process does.
    #[default]
    Info,
    /// And why.
    Debug,
    /// And every step.
    Trace,
}

/// How a log line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// `2026-01-31T12:00:00.000Z INFO reload: …`.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// The keys of an access record, in the order of the JSON form.
pub const ACCESS_RECORD_KEYS: [&str; 25] = [
    "time",
    "request_id",
    "client",
    "peer",
    "listener",
    "tls",
    "method",
    "host",
    "path",
    "query",
    "protocol",
    "status",
    "bytes_in",
    "bytes_out",
    "duration_ms",
    "upstream",
    "endpoint",
    "upstream_ms",
    "attempts",
    "route",
    "generation",
    "rejection",
    "rejection_detail",
    "user_agent",
    "referer",
];

impl AccessLogOutput {
    fn parse(text: &str) -> Result<Self, ValueError> {
        if text.eq_ignore_ascii_case("stdout") {
            return Ok(AccessLogOutput::Stdout);
        }
        if text.eq_ignore_ascii_case("off") {
            return Ok(AccessLogOutput::Off);
        }
        // A misspelt word must not become a file.
        if text.contains(['/', '.']) && !text.contains('\0') {
            return Ok(AccessLogOutput::File(PathBuf::from(text)));
        }
        let hint = match suggest::nearest(text, ["stdout", "off"]) {
            Some(word) => format!("did you mean `{word}`? A file is written ./{text}"),
            None => format!("a file in the configuration's folder is written ./{text}"),
        };
        Err(ValueError::new(format!("{} is not stdout, off or a file path", quoted(text))).with_hint(hint))
    }
}

impl<'de> Deserialize<'de> for AccessLogOutput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::scalar(deserializer, "stdout, off or a file path", AccessLogOutput::parse)
    }
}

impl Serialize for AccessLogOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            AccessLogOutput::Stdout => serializer.serialize_str("stdout"),
            AccessLogOutput::Off => serializer.serialize_str("off"),
            AccessLogOutput::File(path) => path.serialize(serializer),
        }
    }
}

impl AccessLogFormat {
    fn parse(text: &str) -> Result<Self, ValueError> {
        if text.eq_ignore_ascii_case("json") {
            return Ok(AccessLogFormat::Json);
        }
        if text.eq_ignore_ascii_case("combined") {
            return Ok(AccessLogFormat::Combined);
        }
        let keys = placeholders(text)?;
        if keys.is_empty() {
            let error = ValueError::new(format!("{} is not json, combined or a template", quoted(text)));
            return Err(match suggest::nearest(text, ["json", "combined"]) {
                Some(word) => error.with_hint(format!("did you mean `{word}`?")),
                None => error.with_hint("a template names at least one {key}, such as \"{client} {status}\""),
            });
        }
        match keys.iter().find(|key| !ACCESS_RECORD_KEYS.contains(key)) {
            None => Ok(AccessLogFormat::Template(text.to_owned())),
            Some(key) => {
                let error = ValueError::new(format!("unknown placeholder {{{key}}}"));
                Err(match suggest::hint(key, &ACCESS_RECORD_KEYS) {
                    Some(hint) => error.with_hint(hint),
                    None => error,
                })
            }
        }
    }
}

/// The names between braces of a template, in order. A lone `{` or `}` is refused.
pub(super) fn placeholders(template: &str) -> Result<Vec<&str>, ValueError> {
    let lone = |brace: char| ValueError::new(format!("a lone `{brace}` in {}", quoted(template)));
    if template.contains(|c: char| c.is_control()) {
        return Err(ValueError::new("a template must not hold line breaks or control characters"));
    }
    if template.contains("{{") {
        let error = ValueError::new(format!("`{{{{` in {}: braces cannot be text", quoted(template)));
        return Err(error.with_hint("one pair of braces round each name"));
    }
    let (mut names, mut rest) = (Vec::new(), template);
    while let Some(start) = rest.find(['{', '}']) {
        let inside = rest.get(start..).and_then(|rest| rest.strip_prefix('{')).ok_or_else(|| lone('}'))?;
        let (name, after) = inside.split_once('}').ok_or_else(|| lone('{'))?;
        names.push(name);
        rest = after;
    }
    Ok(names)
}

impl<'de> Deserialize<'de> for AccessLogFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::scalar(deserializer, "json, combined or a template", AccessLogFormat::parse)
    }
}

impl Serialize for AccessLogFormat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            AccessLogFormat::Json => "json",
            AccessLogFormat::Combined => "combined",
            AccessLogFormat::Template(template) => template,
        })
    }
}
