//! `health_check:` of an upstream: how its endpoints are asked whether they are well.

use super::each;
use super::error::{ValueError, quoted};
use super::text;
use super::units::HumanDuration;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Active checks of the endpoints of one upstream.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthCheckConfig {
    /// What is asked.
    #[serde(rename = "type")]
    pub kind: HealthCheckType,
    /// `http`: the path asked for; `None` = `/`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `http`: the method; `None` = GET.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<HealthCheckMethod>,
    /// `http`, `grpc`: the Host header, or `:authority`; `None` = the TLS server name, else the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// `http`: good answers; `None` = 200.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "each::written_list")]
    pub status: Option<Vec<StatusRange>>,
    /// `http`: text that the first 64 KiB of a good answer's body hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// `grpc`: the service asked about; `None` = the server as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// Another port than the endpoint's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// From the start of one check to the start of the next, give or take a tenth.
    pub interval: HumanDuration,
    /// For a whole check: connect, handshake, answer.
    pub timeout: HumanDuration,
    /// Good checks in a row that bring an endpoint back.
    pub healthy: u32,
    /// Failed checks in a row that take an endpoint out.
    pub unhealthy: u32,
}

impl Default for HealthCheckConfig {
    fn default() -> Self {
        HealthCheckConfig {
            kind: HealthCheckType::Http,
            path: None,
            method: None,
            host: None,
            status: None,
            body: None,
            service: None,
            port: None,
            interval: HumanDuration::secs(5),
            timeout: HumanDuration::secs(1),
            healthy: 2,
            unhealthy: 3,
        }
    }
}

/// What a check asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthCheckType {
    /// A request that gets a good answer.
    #[default]
    Http,
    /// A connection, with the handshake where the upstream speaks TLS.
    Tcp,
    /// `grpc.health.v1.Health/Check`.
    Grpc,
}

/// Methods of a check: those that change nothing (RFC 9110 section 9.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum HealthCheckMethod {
    /// The default.
    Get,
    /// Without a body to answer with.
    Head,
    /// What the endpoint can do.
    Options,
}

/// A status, `200`, or a range of them, `"200-299"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRange {
    /// The first.
    pub first: u16,
    /// The last; not below the first.
    pub last: u16,
}

impl StatusRange {
    /// Whether `status` is in it.
    pub fn contains(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }

    fn parse(text: &str) -> Result<Self, ValueError> {
        let status = |text: &str| match text.parse::<u16>() {
            Ok(status) if (200..=599).contains(&status) && !text.starts_with('+') => Ok(status),
            _ => Err(ValueError::new(format!("{} is not a status from 200 to 599", quoted(text)))
                .with_hint("such as 200, or \"200-299\"")),
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = StatusRange { first: status(first)?, last: status(last)? };
        if range.first > range.last {
            let swapped = format!("write \"{last}-{first}\"");
            return Err(ValueError::new(format!("{} ends before it begins", quoted(text))).with_hint(swapped));
        }
        Ok(range)
    }
}

impl<'de> Deserialize<'de> for StatusRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::scalar(deserializer, "a status such as 200, or \"200-299\"", StatusRange::parse)
    }
}

impl Serialize for StatusRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.first == self.last {
            true => serializer.serialize_u16(self.first),
            false => serializer.collect_str(&format_args!("{}-{}", self.first, self.last)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_or_a_range_of_them_is_read() {
        assert!(StatusRange::parse("204").unwrap().contains(204));
        let range = StatusRange::parse("200-399").unwrap();
        assert!(range.contains(200) && range.contains(399) && !range.contains(400));
        for text in ["100", "600", "2xx", "300-200", "200-", "-200", ""] {
            assert!(StatusRange::parse(text).is_err(), "{text}");
        }
    }
}
