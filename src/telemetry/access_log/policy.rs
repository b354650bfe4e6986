//! Which records are written, in which format, and what of them is hidden: `access_log:`, compiled.
//!
//! Everything an operator wrote is checked here, once; a request pays a short scan. Does not know where
//! lines go.

use super::format::{Format, Redaction, Template};
use super::record::{AccessRecord, Field};
use super::redact::QueryRedaction;
use crate::config::{AccessLogConfig, AccessLogFormat, AccessLogOutput, Problems, Source};
use ahash::AHashSet;
use ipnet::IpNet;
use prometheus::IntCounter;
use std::net::IpAddr;

/// Prefixes in `exclude.clients`: they are compared one after the other, so there must be few.
const MOST_CLIENTS: usize = 64;

/// One configuration's access log.
#[derive(Debug, Clone)]
pub struct AccessLogPolicy {
    output: AccessLogOutput,
    format: Format,
    redaction: Redaction,
    clients: Vec<IpNet>,
    paths: AHashSet<Box<str>>,
    status: Vec<u16>,
}

impl AccessLogPolicy {
    /// Compiles `access_log:`; `path` is its key path. What is wrong is pushed and left out.
    pub fn compile(config: &AccessLogConfig, source: &Source, path: &str, problems: &mut Problems) -> Self {
        let mut refuse = |key: String, reason: String, hint: &str| {
            let mut problem = source.problem(format!("{path}.{key}"), reason);
            problem.hint = (!hint.is_empty()).then(|| hint.to_owned());
            problems.push(problem);
        };
        let format = match &config.format {
            AccessLogFormat::Json => Format::Json,
            AccessLogFormat::Combined => Format::Combined,
            AccessLogFormat::Template(text) => match Template::compile(text) {
                Ok(template) => Format::Template(template),
                Err((reason, hint)) => {
                    refuse("format".into(), reason, &hint);
                    Format::Json
                }
            },
        };
        let exclude = &config.exclude;
        if exclude.clients.len() > MOST_CLIENTS {
            let reason = format!("{} prefixes, at most {MOST_CLIENTS}", exclude.clients.len());
            refuse("exclude.clients".into(), reason, "use fewer, wider prefixes");
        }
        for (index, excluded) in exclude.paths.iter().enumerate() {
            if !excluded.starts_with('/') {
                let reason = format!("{excluded:?} is no path");
                refuse(format!("exclude.paths[{index}]"), reason, "a path starts with /");
            } else if excluded.contains(['?', '#']) {
                let reason = format!("{excluded:?} is more than a path");
                refuse(format!("exclude.paths[{index}]"), reason, "paths are compared without their query");
            }
        }
        for (index, status) in exclude.status.iter().enumerate() {
            if !(100..=599).contains(status) {
                refuse(
                    format!("exclude.status[{index}]"),
                    format!("{status} is no HTTP status"),
                    "100 to 599",
                );
            }
        }
        let output = resolved(&config.output, source);
        if let AccessLogOutput::File(file) = &output
            && let Some(folder) = file.parent().filter(|folder| !folder.is_dir())
        {
            let reason = format!("cannot be opened: {} is not a folder", folder.display());
            refuse("output".into(), reason, "make it, or name a file in one that is there");
        }
        AccessLogPolicy {
            output,
            format,
            redaction: redaction(config, &mut refuse),
            clients: exclude.clients.iter().take(MOST_CLIENTS).map(|cidr| cidr.0).collect(),
            paths: exclude.paths.iter().map(|path| path.as_str().into()).collect(),
            status: exclude.status.clone(),
        }
    }

    /// Where lines go, relative paths resolved.
    pub fn output(&self) -> &AccessLogOutput {
        &self.output
    }

    /// Whether no record is written at all.
    pub fn is_off(&self) -> bool {
        self.output == AccessLogOutput::Off
    }

    /// Whether such a request gets a record. One the operator does not want is counted in `excluded`.
    pub fn wants(&self, client: IpAddr, path: &str, status: u16, excluded: &IntCounter) -> bool {
        if self.is_off() {
            return false;
        }
        let unwanted = self.excludes(client, path, status);
        if unwanted {
            excluded.inc();
        }
        !unwanted
    }

    /// IPv4-mapped clients are IPv4.
    fn excludes(&self, client: IpAddr, path: &str, status: u16) -> bool {
        self.status.contains(&status)
            || (!self.paths.is_empty() && self.paths.contains(path))
            || (!self.clients.is_empty() && {
                let client = client.to_canonical();
                self.clients.iter().any(|prefix| prefix.contains(&client))
            })
    }

    /// Appends the line of a record, line feed included.
    pub fn format(&self, record: &AccessRecord<'_>, out: &mut Vec<u8>) {
        self.format.append(out, record, &self.redaction);
    }
}

fn resolved(output: &AccessLogOutput, source: &Source) -> AccessLogOutput {
    match output {
        AccessLogOutput::File(file) => AccessLogOutput::File(source.resolve(file)),
        output => output.clone(),
    }
}

fn redaction(config: &AccessLogConfig, refuse: &mut impl FnMut(String, String, &str)) -> Redaction {
    let mut redaction =
        Redaction { query: QueryRedaction::new(&config.redact.query), ..Redaction::default() };
    for (index, name) in config.redact.query.iter().enumerate() {
        if name.is_empty() {
            refuse(format!("redact.query[{index}]"), "an empty parameter name".into(), "");
        }
    }
    for (index, name) in config.redact.headers.iter().enumerate() {
        let Ok(header) = http::HeaderName::try_from(name.as_str()) else {
            refuse(format!("redact.headers[{index}]"), format!("{name:?} is no header name"), "");
            continue;
        };
        if let Some(hidden) =
            Field::from_header(header.as_str()).and_then(|field| redaction.hidden.get_mut(field.index()))
        {
            *hidden = true;
        }
    }
    redaction
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Cidr;

    fn compile(config: &AccessLogConfig) -> (AccessLogPolicy, Vec<String>) {
        let mut problems = Problems::default();
        let policy = AccessLogPolicy::compile(config, &Source::default(), "access_log", &mut problems);
        (policy, problems.0.iter().map(|problem| format!("{}: {}", problem.path, problem.reason)).collect())
    }

    fn excluding() -> AccessLogConfig {
        let mut config = AccessLogConfig::default();
        config.exclude.clients = ["127.0.0.0/8", "::1/128"].map(|cidr| Cidr(cidr.parse().unwrap())).into();
        config.exclude.paths = vec!["/healthz".into()];
        config.exclude.status = vec![204];
        config
    }

    #[test]
    fn each_list_alone_excludes() {
        let (policy, problems) = compile(&excluding());
        assert!(problems.is_empty());
        for (client, path, status, excluded) in [
            ("192.0.2.1", "/", 200, false),
            ("127.0.0.9", "/", 200, true),
            ("::ffff:127.0.0.1", "/", 200, true),
            ("::1", "/", 200, true),
            ("::2", "/", 200, false),
            ("192.0.2.1", "/healthz", 200, true),
            ("192.0.2.1", "/healthz/", 200, false),
            ("192.0.2.1", "/", 204, true),
        ] {
            assert_eq!(policy.excludes(client.parse().unwrap(), path, status), excluded, "{client} {path}");
        }
    }

    #[test]
    fn everything_wrong_is_reported_at_once() {
        let mut config = excluding();
        config.format = AccessLogFormat::Template("{nope}".into());
        config.exclude.clients = vec![Cidr("10.0.0.0/8".parse().unwrap()); MOST_CLIENTS + 1];
        config.exclude.paths.extend(["healthz".into(), "/a?b".into()]);
        config.exclude.status.push(42);
        config.redact.query = vec![String::new()];
        config.redact.headers = vec!["cookie".into(), "co okie".into()];
        let expected = [
            "access_log.format: unknown key {nope}",
            "access_log.exclude.clients: 65 prefixes, at most 64",
            "access_log.exclude.paths[1]: \"healthz\" is no path",
            "access_log.exclude.paths[2]: \"/a?b\" is more than a path",
            "access_log.exclude.status[1]: 42 is no HTTP status",
            "access_log.redact.query[0]: an empty parameter name",
            "access_log.redact.headers[1]: \"co okie\" is no header name",
        ];
        assert_eq!(compile(&config).1, expected);
    }

    #[test]
    fn headers_are_hidden_whatever_their_case() {
        let mut config = AccessLogConfig::default();
        config.redact.headers = vec!["User-Agent".into(), "authorization".into()];
        let (policy, _) = compile(&config);
        assert!(policy.redaction.hidden[Field::UserAgent.index()]);
        assert_eq!(policy.redaction.hidden.iter().filter(|hidden| **hidden).count(), 1);
    }
}
