//! Which cookie ties a client to an endpoint? One whose value only we can make.
//!
//! The value is a MAC of upstream and endpoint: it names no address, cannot be made up for an endpoint a
//! client was not given, and needs no memory here. With a secret from a file it holds over restarts and for
//! all gateways that have the file, else for as long as the process lives and those that take over from it.
//! Knows nothing of requests.

use crate::config::{Problem, Problems, Source, StickyConfig, file};
use boring::hash::hmac_sha256;
use http::HeaderValue;
use parking_lot::RwLock;
use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;

/// Shortest and longest secret, in bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=4096;

/// For upstreams without a secret of their own.
static PROCESS_SECRET: LazyLock<RwLock<ProcessSecret>> = LazyLock::new(|| RwLock::new(rand::random()));

/// A secret made by a process, for itself and those that take over from it.
pub type ProcessSecret = [u8; 32];

/// The secret of upstreams without one of their own, for a process that takes over.
pub fn process_secret() -> ProcessSecret {
    *PROCESS_SECRET.read()
}

/// Takes the secret of the process before this one; what is compiled from now on goes by it.
pub fn adopt_process_secret(secret: ProcessSecret) {
    *PROCESS_SECRET.write() = secret;
}

/// `sticky:` of an upstream, compiled.
#[derive(Clone, PartialEq, Eq)]
pub struct Sticky {
    cookie: String,
    secret: Vec<u8>,
    ttl: Duration,
}

/// What a client gets that is tied to an endpoint.
#[derive(Debug)]
pub struct Tie {
    /// The value of its cookie.
    pub token: u128,
    /// The header that sets it, for a client without TLS.
    pub plain: HeaderValue,
    /// For one with TLS.
    pub secure: HeaderValue,
}

impl Sticky {
    /// Reads the secret; `path` is the key path of the upstream. `None` when a problem was reported.
    pub fn compile(
        config: &StickyConfig,
        source: &Source,
        path: &str,
        problems: &mut Problems,
    ) -> Option<Sticky> {
        let secret = match &config.secret_file {
            None => process_secret().to_vec(),
            Some(file) => match read_secret(&source.resolve(file)) {
                Ok(secret) => secret,
                Err(reason) => {
                    let mut problem: Problem = source.problem(format!("{path}.sticky.secret_file"), reason);
                    problem.hint = Some("such as: openssl rand -hex 32 > FILE".to_owned());
                    problems.push(problem);
                    return None;
                }
            },
        };
        Some(Sticky { cookie: config.cookie.clone(), secret, ttl: config.ttl.0 })
    }

    /// The name of the cookie.
    pub fn cookie(&self) -> &str {
        &self.cookie
    }

    /// What ties a client to the endpoint `label` of the upstream `name`. `None` where no MAC can be made.
    pub fn tie(&self, name: &str, label: &str) -> Option<Tie> {
        // A name may hold no NUL: what belongs to which part is never in doubt.
        let mac = hmac_sha256(&self.secret, format!("sticky\0{name}\0{label}").as_bytes()).ok()?;
        let token = u128::from_be_bytes(mac.get(..16)?.try_into().ok()?);
        let mut cookie = format!("{}={token:032x}; Path=/; HttpOnly; SameSite=Lax", self.cookie);
        if !self.ttl.is_zero() {
            cookie.push_str(&format!("; Max-Age={}", self.ttl.as_secs()));
        }
        let secure = HeaderValue::try_from(format!("{cookie}; Secure")).ok()?;
        Some(Tie { token, plain: HeaderValue::try_from(cookie).ok()?, secure })
    }
}

/// The token in the value of a cookie, if it has the form of one.
pub fn token(value: &[u8]) -> Option<u128> {
    // The parser alone would take a sign in place of the first digit.
    let is_token = value.len() == 32 && value.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(value).ok().filter(|_| is_token)?;
    u128::from_str_radix(digits, 16).ok()
}

fn read_secret(file: &Path) -> Result<Vec<u8>, String> {
    let (shown, written) = (file.display(), file::read(file, 1)?);
    if written.len() > *SECRET_BYTES.end() {
        return Err(format!("{shown} is longer than {} bytes", SECRET_BYTES.end()));
    }
    let secret = written.trim_ascii();
    match SECRET_BYTES.contains(&secret.len()) {
        true => Ok(secret.to_vec()),
        false => Err(format!("the secret in {shown} is shorter than {} bytes", SECRET_BYTES.start())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::HumanDuration;
    use crate::upstream::fixtures::Folder;

    fn compile(folder: &Folder, secret: Option<&[u8]>) -> Result<Sticky, String> {
        let secret_file = secret.map(|secret| folder.write("secret", secret));
        let config = StickyConfig { cookie: "sid".to_owned(), secret_file, ttl: HumanDuration::secs(60) };
        let mut problems = Problems::default();
        Sticky::compile(&config, &folder.source(), "upstreams.app", &mut problems)
            .ok_or_else(|| problems.to_string())
    }

    #[test]
    fn a_token_depends_on_secret_upstream_and_endpoint_alone() {
        let folder = Folder::new();
        let one = compile(&folder, Some(b"0123456789abcdef\n")).unwrap();
        let token = |sticky: &Sticky, name: &str, label: &str| sticky.tie(name, label).unwrap().token;
        let mut tokens = vec![
            token(&one, "app", "10.0.0.1:80"),
            token(&one, "app", "10.0.0.2:80"),
            token(&one, "next", "10.0.0.1:80"),
            token(&compile(&folder, None).unwrap(), "app", "10.0.0.1:80"),
            token(&compile(&folder, Some(b"0123456789abcdeg")).unwrap(), "app", "10.0.0.1:80"),
        ];
        let again = compile(&folder, Some(b"0123456789abcdef")).unwrap();
        assert_eq!(
            token(&again, "app", "10.0.0.1:80"),
            tokens[0],
            "a line break at the end is no part of it"
        );
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 5);
    }

    #[test]
    fn a_cookie_is_read_as_it_was_written() {
        let tie = compile(&Folder::new(), None).unwrap().tie("app", "10.0.0.1:80").unwrap();
        let plain = tie.plain.to_str().unwrap();
        let (value, attributes) = plain.strip_prefix("sid=").unwrap().split_once("; ").unwrap();
        assert_eq!(token(value.as_bytes()), Some(tie.token));
        assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax; Max-Age=60");
        assert_eq!(tie.secure.to_str().unwrap(), format!("{plain}; Secure"));
        let signed = format!("+{}", &value[1..]);
        for bad in ["", "x", &value[1..], &format!("{value}0"), &signed, &"\u{e9}".repeat(16)] {
            assert_eq!(token(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn a_secret_that_is_none_is_refused() {
        let folder = Folder::new();
        let error = compile(&folder, Some(b"   short   \n")).err().unwrap();
        assert!(error.contains("upstreams.app.sticky.secret_file: the secret in"), "{error}");
        assert!(compile(&folder, Some(&[b'x'; 5000])).err().unwrap().contains("longer than 4096"));
        // Others of its kind never end.
        let reason = read_secret(Path::new("/dev/null")).unwrap_err();
        assert_eq!(reason, "cannot read /dev/null: it is not a regular file");
    }
}
