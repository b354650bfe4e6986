//! Predicates of a route beside host and path: methods, headers, query, client, its certificate. All must
//! hold.
//!
//! A header or query predicate holds when any line or occurrence of that name satisfies it. Header names
//! are case-insensitive; values, query names and methods are compared byte for byte.

use super::text::Text;
use super::{ClientCertificateView, RequestView, query};
use crate::config::{CidrEntry, Problems, RouteConfig, Source, ValueMatchConfig};
use http::{HeaderName, Method};
use regex::bytes::{Regex, RegexBuilder};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// A predicate on the client address, compiled elsewhere.
pub type ClientPredicate = Box<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// Largest compiled regular expression, in bytes.
pub(super) const MAX_REGEX_BYTES: usize = 1 << 20;

/// Compiled predicates.
pub(super) struct Predicates {
    methods: Vec<Method>,
    headers: Vec<(HeaderName, ValueMatch)>,
    query: Vec<(Text, ValueMatch)>,
    client: Option<ClientPredicate>,
    certificate: Vec<(CertificateField, ValueMatch)>,
}

/// What of a certificate a predicate looks at.
#[derive(Debug, Clone, Copy)]
enum CertificateField {
    Subject,
    San,
    Fingerprint,
}

impl fmt::Debug for Predicates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Predicates")
            .field("methods", &self.methods)
            .field("headers", &self.headers)
            .field("query", &self.query)
            .field("client", &self.client.is_some())
            .field("certificate", &self.certificate)
            .finish()
    }
}

#[derive(Debug)]
enum ValueMatch {
    Exact(Text),
    Regex(Regex),
    Present(bool),
}

impl Predicates {
    /// Compiles the predicates of a route written at key path `path`.
    pub fn compile(
        config: &RouteConfig,
        client: Option<ClientPredicate>,
        source: &Source,
        path: &str,
        problems: &mut Problems,
    ) -> Self {
        let (methods, headers, query) = (Vec::new(), Vec::new(), Vec::new());
        let mut predicates = Predicates { methods, headers, query, client, certificate: Vec::new() };
        for (index, written) in config.methods.iter().enumerate() {
            match compile_method(written) {
                Ok(method) => predicates.methods.push(method),
                Err((reason, hint)) => {
                    let mut problem = source.problem(format!("{path}.methods[{index}]"), reason);
                    problem.hint = hint;
                    problems.push(problem);
                }
            }
        }
        for (name, wanted) in &config.headers {
            let at = format!("{path}.headers.{name}");
            match (HeaderName::from_bytes(name.as_bytes()), compile_value(wanted)) {
                (Ok(name), Ok(wanted)) => predicates.headers.push((name, wanted)),
                (Err(_), _) => problems.push(source.problem(at, format!("`{name}` is not a header name"))),
                (_, Err(reason)) => problems.push(source.problem(at, reason)),
            }
        }
        for (name, wanted) in &config.query {
            match compile_value(wanted) {
                Ok(wanted) => predicates.query.push((Text::from(name.as_str()), wanted)),
                Err(reason) => problems.push(source.problem(format!("{path}.query.{name}"), reason)),
            }
        }
        for (key, wanted) in config.client_certificate.written() {
            match compile_certificate(key, wanted) {
                Ok(compiled) => predicates.certificate.push(compiled),
                Err(reason) => {
                    problems.push(source.problem(format!("{path}.client_certificate.{key}"), reason));
                }
            }
        }
        predicates
    }

    /// How many there are; a list of methods is one.
    pub fn count(&self) -> usize {
        usize::from(!self.methods.is_empty())
            + self.headers.len()
            + self.query.len()
            + usize::from(self.client.is_some())
            + self.certificate.len()
    }

    /// Whether all hold.
    pub fn hold(&self, request: &RequestView<'_>) -> bool {
        (self.methods.is_empty() || self.methods.contains(request.method))
            && self.headers.iter().all(|(name, wanted)| {
                let mut lines = request.headers.get_all(name).iter();
                wanted.any(
                    &mut lines,
                    |value, line| value == line.as_bytes(),
                    |regex, line| regex.is_match(line.as_bytes()),
                )
            })
            && self.query.iter().all(|(name, wanted)| {
                let mut values = query::values(request.query.unwrap_or_default(), name.as_bytes());
                wanted.any(
                    &mut values,
                    |value, written| query::equals_decoded(written, value),
                    |regex, written| regex.is_match(&query::decoded(written)),
                )
            })
            && self.client.as_ref().is_none_or(|client| client(request.client))
            && self.certificate.iter().all(|(field, wanted)| {
                wanted.any(
                    &mut field.values(request.client_certificate.as_ref()),
                    |value, shown| value == shown,
                    |regex, shown| regex.is_match(shown),
                )
            })
    }
}

impl CertificateField {
    /// Without a certificate there are none.
    fn values<'a>(self, shown: Option<&ClientCertificateView<'a>>) -> impl Iterator<Item = &'a [u8]> {
        let (one, many) = match (self, shown) {
            (_, None) => (None, [].as_slice()),
            (CertificateField::Subject, Some(shown)) => (Some(shown.subject), [].as_slice()),
            (CertificateField::San, Some(shown)) => (None, shown.sans),
            (CertificateField::Fingerprint, Some(shown)) => (Some(shown.fingerprint), [].as_slice()),
        };
        one.into_iter().chain(many.iter().map(String::as_bytes))
    }
}

impl ValueMatch {
    fn any<T>(
        &self,
        values: &mut impl Iterator<Item = T>,
        equal: impl Fn(&[u8], T) -> bool,
        matches: impl Fn(&Regex, T) -> bool,
    ) -> bool {
        match self {
            ValueMatch::Exact(wanted) => values.any(|value| equal(wanted.as_bytes(), value)),
            ValueMatch::Regex(regex) => values.any(|value| matches(regex, value)),
            ValueMatch::Present(wanted) => values.next().is_some() == *wanted,
        }
    }
}

fn compile_method(written: &str) -> Result<Method, (String, Option<String>)> {
    let upper = written.to_ascii_uppercase();
    let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
    if upper != written && known.contains(&upper.as_str()) {
        return Err((format!("`{written}` is not a method"), Some(format!("did you mean `{upper}`?"))));
    }
    Method::from_bytes(written.as_bytes()).map_err(|_| (format!("`{written}` is not a method"), None))
}

fn compile_value(written: &ValueMatchConfig) -> Result<ValueMatch, String> {
    Ok(match written {
        ValueMatchConfig::Exact(value) => ValueMatch::Exact(Text::from(value.as_str())),
        ValueMatchConfig::Present(wanted) => ValueMatch::Present(*wanted),
        ValueMatchConfig::Regex(pattern) => {
            let regex = RegexBuilder::new(pattern).size_limit(MAX_REGEX_BYTES).build();
            ValueMatch::Regex(regex.map_err(|error| error.to_string())?)
        }
    })
}

/// A fingerprint may be written as `openssl x509 -fingerprint` does, in capitals with colons.
fn compile_certificate(
    key: &str,
    written: &ValueMatchConfig,
) -> Result<(CertificateField, ValueMatch), String> {
    let field = match key {
        "subject" => CertificateField::Subject,
        "san" => CertificateField::San,
        _ => CertificateField::Fingerprint,
    };
    let wanted = match (field, written) {
        (CertificateField::Fingerprint, ValueMatchConfig::Exact(value)) => {
            let plain: String = value.chars().filter(|c| *c != ':').collect();
            if plain.len() != 64 || !plain.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(format!("`{value}` is not a SHA-256 fingerprint of 64 hexadecimal digits"));
            }
            ValueMatch::Exact(Text::from(plain.to_ascii_lowercase().as_str()))
        }
        _ => compile_value(written)?,
    };
    Ok((field, wanted))
}

/// Predicates as written, kept while a router is built: they can be compared, compiled ones cannot.
#[derive(Debug, PartialEq)]
pub(super) struct Written {
    methods: Vec<String>,
    headers: BTreeMap<String, ValueMatchConfig>,
    query: BTreeMap<String, ValueMatchConfig>,
    client: Vec<CidrEntry>,
    certificate: BTreeMap<String, ValueMatchConfig>,
}

impl Written {
    /// What a route says.
    pub fn of(config: &RouteConfig) -> Self {
        let lower = |(name, value): (&String, &ValueMatchConfig)| (name.to_ascii_lowercase(), value.clone());
        Written {
            methods: config.methods.clone(),
            headers: config.headers.iter().map(lower).collect(),
            query: config.query.clone(),
            client: config.client.clone(),
            certificate: config
                .client_certificate
                .written()
                .map(|(key, wanted)| (key.to_owned(), wanted.clone()))
                .collect(),
        }
    }

    /// Whether every request that satisfies `other` surely satisfies these too.
    pub fn cover(&self, other: &Written) -> bool {
        let methods = self.methods.is_empty()
            || (!other.methods.is_empty()
                && other.methods.iter().all(|method| self.methods.contains(method)));
        methods
            && cover_values(&self.headers, &other.headers)
            && cover_values(&self.query, &other.query)
            && cover_values(&self.certificate, &other.certificate)
            && (self.client.is_empty() || self.client == other.client)
    }
}

fn cover_values(
    wide: &BTreeMap<String, ValueMatchConfig>,
    narrow: &BTreeMap<String, ValueMatchConfig>,
) -> bool {
    wide.iter().all(|(name, wanted)| match (wanted, narrow.get(name)) {
        (_, None) => false,
        (ValueMatchConfig::Present(true), Some(other)) => *other != ValueMatchConfig::Present(false),
        (wanted, Some(other)) => wanted == other,
    })
}
