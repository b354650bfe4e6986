//! `upstreams:`, where requests are sent.

use super::balance::BalanceConfig;
use super::each;
use super::endpoint_address::EndpointAddress;
use super::error::{ValueError, quoted};
use super::health_check::HealthCheckConfig;
use super::protocol::UpstreamProtocol;
use super::retry::RetryConfig;
use super::units::HumanDuration;
use serde::de::{Error, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What the shown names of inline lists begin with; no named upstream may.
pub const INLINE_PREFIX: &str = "route:";

/// A named upstream.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamConfig {
    /// At least one.
    #[serde(deserialize_with = "each::list")]
    pub endpoints: Vec<EndpointConfig>,
    /// How an endpoint is chosen.
    #[serde(default)]
    pub balance: BalanceConfig,
    /// Tie clients to endpoints by a cookie; `None` = do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky: Option<StickyConfig>,
    /// How long a new or recovered endpoint takes to get its whole share; 0 = at once.
    #[serde(default)]
    pub slow_start: HumanDuration,
    /// When fewer percent of the endpoints are available, all are used; 0 = never.
    #[serde(default = "panic_percent")]
    pub panic_percent: u8,
    /// Take endpoints out that keep failing; `None` = never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ejection: Option<EjectionConfig>,
    /// Most requests in flight, more are refused; 0 = no limit.
    #[serde(default)]
    pub max_requests: u32,
    /// Idle connections kept, per worker.
    #[serde(default = "keepalive")]
    pub keepalive: u32,
    /// What is spoken to the endpoints.
    #[serde(default)]
    pub protocol: UpstreamProtocol,
    /// Speak TLS to the endpoints; `None` = plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<UpstreamTlsConfig>,
    /// When a request is sent once more.
    #[serde(default)]
    pub retry: RetryConfig,
    /// Whether connections begin with a PROXY header that names the client.
    #[serde(default)]
    pub proxy_protocol: UpstreamProxyProtocol,
    /// Active checks of the endpoints; `None` = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheckConfig>,
}

/// Whether connections to an upstream begin with a header of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamProxyProtocol {
    /// They do not.
    #[default]
    Off,
    /// With one of version 2.
    V2,
}

impl UpstreamConfig {
    /// What an inline list of endpoints stands for: an upstream with every default.
    pub fn inline(endpoints: Vec<EndpointConfig>) -> Self {
        UpstreamConfig {
            endpoints,
            balance: BalanceConfig::default(),
            sticky: None,
            slow_start: HumanDuration::default(),
            panic_percent: panic_percent(),
            ejection: None,
            max_requests: 0,
            keepalive: keepalive(),
            protocol: UpstreamProtocol::default(),
            tls: None,
            retry: RetryConfig::default(),
            proxy_protocol: UpstreamProxyProtocol::Off,
            health_check: None,
        }
    }
}

/// `sticky:` of an upstream, a cookie that ties a client to its endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StickyConfig {
    /// Its name.
    pub cookie: String,
    /// Makes it hold over restarts and for other gateways; `None` = a random one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,
    /// How long the client keeps it, in whole seconds; 0 = until the browser is closed.
    #[serde(default)]
    pub ttl: HumanDuration,
}

/// `ejection:` of an upstream, when an endpoint is out for what it answered.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct EjectionConfig {
    /// So many failures...
    pub failures: u32,
    /// ...within this time take an endpoint out...
    pub window: HumanDuration,
    /// ...for this long; longer when it fails again soon.
    #[serde(rename = "for")]
    pub eject_for: HumanDuration,
    /// Never more than this share of the endpoints.
    pub max_percent: u8,
}

impl Default for EjectionConfig {
    fn default() -> Self {
        EjectionConfig {
            failures: 5,
            window: HumanDuration::secs(10),
            eject_for: HumanDuration::secs(30),
            max_percent: 50,
        }
    }
}

/// Of ten or fewer, never as long as one is available.
fn panic_percent() -> u8 {
    10
}

fn keepalive() -> u32 {
    1024
}

/// One endpoint: `127.0.0.1:9000` or `{ address: …, weight: 2 }`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EndpointConfig {
    /// Address or name, and port.
    pub address: EndpointAddress,
    /// Share of the traffic relative to the others; 1 to 1,000 (default 1).
    pub weight: u32,
    /// Gets requests only when no other is available.
    pub backup: bool,
}

impl EndpointConfig {
    /// What a bare address stands for.
    pub fn at(address: SocketAddr) -> Self {
        EndpointConfig { address: EndpointAddress::Socket(address), weight: one(), backup: false }
    }
}

/// TLS towards an upstream; certificates are verified unless `verify: false`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamTlsConfig {
    /// The name asked for (SNI) and verified, or the address verified; left out: that of the endpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// PEM file of the authorities trusted in place of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Client certificate, PEM; needs `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    /// Client key, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Verify the endpoint's certificate and name.
    #[serde(default = "yes")]
    pub verify: bool,
}

fn yes() -> bool {
    true
}

/// `upstream:` of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamTargetConfig {
    /// The name of an entry of `upstreams:`.
    Named(String),
    /// An inline list of endpoints.
    Inline(Vec<EndpointConfig>),
    /// `[{ app: 90 }, { app-next: 10 }]`: a weighted split between named upstreams, in file order.
    Split(Vec<(String, u32)>),
}

impl Serialize for UpstreamTargetConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            UpstreamTargetConfig::Named(name) => serializer.serialize_str(name),
            UpstreamTargetConfig::Inline(endpoints) => endpoints.serialize(serializer),
            UpstreamTargetConfig::Split(shares) => {
                let mut list = serializer.serialize_seq(Some(shares.len()))?;
                for (name, weight) in shares {
                    list.serialize_element(&BTreeMap::from([(name, weight)]))?;
                }
                list.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for EndpointConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EndpointVisitor)
    }
}

struct EndpointVisitor;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongEndpoint {
    address: EndpointAddress,
    #[serde(default = "one")]
    weight: u32,
    #[serde(default)]
    backup: bool,
}

fn one() -> u32 {
    1
}

impl<'de> Visitor<'de> for EndpointVisitor {
    type Value = EndpointConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address such as 127.0.0.1:9000, or { address: …, weight: … }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<EndpointConfig, E> {
        let address = EndpointAddress::parse(text).map_err(ValueError::into_serde)?;
        Ok(EndpointConfig { address, weight: one(), backup: false })
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<EndpointConfig, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<EndpointConfig, A::Error> {
        let long = LongEndpoint::deserialize(MapAccessDeserializer::new(access))?;
        let LongEndpoint { address, weight, backup } = long;
        Ok(EndpointConfig { address, weight, backup })
    }
}

impl<'de> Deserialize<'de> for UpstreamTargetConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TargetVisitor)
    }
}

struct TargetVisitor;

impl<'de> Visitor<'de> for TargetVisitor {
    type Value = UpstreamTargetConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of an upstream, a list of addresses, or a list of { NAME: weight }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<UpstreamTargetConfig, E> {
        if EndpointAddress::parse(text).is_ok() {
            let reason = format!("{} is an address, not the name of an upstream", quoted(text));
            return Err(ValueError::new(reason).with_hint(format!("write [\"{text}\"]")).into_serde());
        }
        Ok(UpstreamTargetConfig::Named(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<UpstreamTargetConfig, A::Error> {
        let parts: Vec<Part> = each::list(serde::de::value::SeqAccessDeserializer::new(access))?;
        let (mut endpoints, mut shares) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                Part::Endpoint(endpoint) => endpoints.push(endpoint),
                Part::Share(name, weight) => shares.push((name, weight)),
            }
        }
        match (endpoints.is_empty(), shares.is_empty()) {
            (_, true) => Ok(UpstreamTargetConfig::Inline(endpoints)),
            (true, false) => Ok(UpstreamTargetConfig::Split(shares)),
            (false, false) => {
                let error = ValueError::new("mixes addresses and names of upstreams");
                Err(error.with_hint("put the addresses under `upstreams` and name them here").into_serde())
            }
        }
    }
}

/// What `backup` means beside it: a flag of an endpoint, or the share of an upstream.
enum FlagOrShare {
    Flag(bool),
    Share(u32),
}

impl<'de> Deserialize<'de> for FlagOrShare {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FlagOrShareVisitor)
    }
}

struct FlagOrShareVisitor;

impl Visitor<'_> for FlagOrShareVisitor {
    type Value = FlagOrShare;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true or false, or the weight of the upstream `backup`")
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<FlagOrShare, E> {
        Ok(FlagOrShare::Flag(flag))
    }

    fn visit_u64<E: Error>(self, weight: u64) -> Result<FlagOrShare, E> {
        // Too large a weight is refused with all others.
        Ok(FlagOrShare::Share(u32::try_from(weight).unwrap_or(u32::MAX)))
    }
}

/// One element of a list of a route's `upstream`.
enum Part {
    Endpoint(EndpointConfig),
    Share(String, u32),
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PartVisitor)
    }
}

struct PartVisitor;

impl<'de> Visitor<'de> for PartVisitor {
    type Value = Part;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an address such as 127.0.0.1:9000, { address: …, weight: … }, or { NAME: weight }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Part, E> {
        EndpointVisitor.visit_str(text).map(Part::Endpoint)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Part, E> {
        EndpointVisitor.visit_u64(number).map(Part::Endpoint)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Part, A::Error> {
        let (mut address, mut weight, mut backup, mut share) = (None, None, None, None);
        while let Some(key) = access.next_key::<String>()? {
            match key.as_str() {
                "address" => address = Some(access.next_value::<EndpointAddress>()?),
                "weight" => weight = Some(access.next_value()?),
                // An upstream may have this name: `{ backup: 10 }` is its share.
                "backup" => match access.next_value()? {
                    FlagOrShare::Flag(flag) => backup = Some(flag),
                    FlagOrShare::Share(weight) => share = Some((key, weight)),
                },
                _ if share.is_some() || address.is_some() || weight.is_some() || backup.is_some() => {
                    let error = ValueError::new(format!("{} is one key too many", quoted(&key)));
                    return Err(error.with_hint("one { NAME: weight } an element").into_serde());
                }
                _ => share = Some((key, access.next_value()?)),
            }
        }
        match (share, address) {
            (Some((name, share)), None) if weight.is_none() && backup.is_none() => {
                Ok(Part::Share(name, share))
            }
            (None, Some(address)) => {
                let (weight, backup) = (weight.unwrap_or(one()), backup.unwrap_or(false));
                Ok(Part::Endpoint(EndpointConfig { address, weight, backup }))
            }
            (None, None) => {
                Err(A::Error::custom("needs an `address`, or the name of an upstream and its weight"))
            }
            _ => Err(A::Error::custom("mixes an address and the name of an upstream")),
        }
    }
}
