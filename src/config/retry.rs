//! `retry:` of an upstream: which failures are tried again, and how often.

use super::each;
use super::error::{ValueError, quoted};
use super::text;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// When a request is sent once more.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryConfig {
    /// Most attempts of one request, the first included; 1 to 10.
    pub attempts: u32,
    /// What is tried again; empty = nothing.
    #[serde(deserialize_with = "each::list")]
    pub on: Vec<RetryOn>,
    /// Which requests, once the upstream may have begun to work on them.
    pub methods: RetryMethods,
    /// Retries of what the upstream has seen, in percent of the requests; 1 to 100.
    pub budget_percent: u32,
}

impl Default for RetryConfig {
    fn default() -> Self {
        RetryConfig {
            attempts: 2,
            on: vec![RetryOn::Connect, RetryOn::Stale],
            methods: RetryMethods::Idempotent,
            budget_percent: 20,
        }
    }
}

/// A failure that may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryOn {
    /// The connection could not be made.
    Connect,
    /// A kept connection turned out dead.
    Stale,
    /// A fresh connection ended without an answer.
    Closed,
    /// No response head in time.
    Timeout,
    /// The upstream answered with this status: 500, 502, 503 or 504.
    Status(u16),
}

/// Which requests are tried again once the upstream may have begun to work on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryMethods {
    /// Those that may be repeated without harm (RFC 9110 section 9.2.2).
    #[default]
    Idempotent,
    /// All of them.
    All,
}

impl<'de> Deserialize<'de> for RetryOn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::scalar(deserializer, "connect, stale, closed, timeout, 500, 502, 503 or 504", parse)
    }
}

impl Serialize for RetryOn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            RetryOn::Connect => serializer.serialize_str("connect"),
            RetryOn::Stale => serializer.serialize_str("stale"),
            RetryOn::Closed => serializer.serialize_str("closed"),
            RetryOn::Timeout => serializer.serialize_str("timeout"),
            RetryOn::Status(status) => serializer.serialize_u16(*status),
        }
    }
}

fn parse(text: &str) -> Result<RetryOn, ValueError> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "connect" => RetryOn::Connect,
        "stale" => RetryOn::Stale,
        "closed" => RetryOn::Closed,
        "timeout" => RetryOn::Timeout,
        "500" => RetryOn::Status(500),
        "502" => RetryOn::Status(502),
        "503" => RetryOn::Status(503),
        "504" => RetryOn::Status(504),
        _ => {
            let error = ValueError::new(format!("{} is not tried again", quoted(text)));
            return Err(error.with_hint("connect, stale, closed, timeout, 500, 502, 503 or 504"));
        }
    })
}
