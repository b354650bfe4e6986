//! `access_log:` and `log:`.

use super::access::Cidr;
use serde::{Deserialize, Serialize};
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
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
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
    pub clients: Vec<Cidr>,
    /// Exact request paths.
    pub paths: Vec<String>,
    /// Response statuses.
    pub status: Vec<u16>,
}

/// Which values are never written.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLogRedactConfig {
    /// Query parameters whose value is hidden.
    pub query: Vec<String>,
    /// Request headers whose value is hidden wherever a format would show it.
    pub headers: Vec<String>,
}

/// `log:`, the process's own log on stderr.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Least severe level written.
    pub level: LogLevel,
    /// How a line is written.
    pub format: LogFormat,
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
