//! Paths of routes: exact, regular expression, prefix at a segment boundary.
//!
//! Compared byte for byte with a canonical request path. A prefix `/v1` holds `/v1` and `/v1/x`, not
//! `/v10`. With a trailing slash, `/v1/` holds only what is below: `/v1/` and `/v1/x`, not `/v1`. The
//! prefix `/` and a route without a path hold every path, `*` too.
//!
//! One [`PathTable`] holds the paths of all routes of one host. Exact paths and prefixes are found by
//! hash, so their number does not matter; regular expressions are tried one after the other, in the
//! order in which each first appears in the file.

use super::predicate::MAX_REGEX_BYTES;
use super::text::Text;
use crate::config::PathConfig;
use regex::{Regex, RegexBuilder};
use std::cmp::Reverse;
use std::collections::HashMap;

/// A compiled `path:`. Patterns of different routes that are equal as text are one path.
#[derive(Debug, Clone)]
pub(super) enum PathPattern {
    Exact(Box<str>),
    Regex(Regex),
    /// `/` is the prefix of everything.
    Prefix(Box<str>),
}

impl PathPattern {
    /// Compiles what the operator wrote; the error is a reason and a hint.
    pub fn compile(written: Option<&PathConfig>) -> Result<Self, (String, Option<&'static str>)> {
        match written {
            None => Ok(PathPattern::Prefix("/".into())),
            Some(PathConfig::Prefix(path)) => check(path).map(|()| PathPattern::Prefix(path.as_str().into())),
            Some(PathConfig::Exact(path)) => check(path).map(|()| PathPattern::Exact(path.as_str().into())),
            Some(PathConfig::Regex(pattern)) => RegexBuilder::new(pattern)
                .size_limit(MAX_REGEX_BYTES)
                .build()
                .map(PathPattern::Regex)
                .map_err(|error| (error.to_string(), None)),
        }
    }

    /// Orders candidates of one kind; equal keys are the same path.
    fn key(&self) -> (u8, &str) {
        match self {
            PathPattern::Exact(path) => (0, path),
            PathPattern::Regex(regex) => (1, regex.as_str()),
            PathPattern::Prefix(path) => (2, path),
        }
    }
}

/// Refuses a path no canonical request path can equal.
fn check(path: &str) -> Result<(), (String, Option<&'static str>)> {
    let refuse = |reason: &str, hint| Err((format!("`{path}` {reason}"), hint));
    if !path.starts_with('/') {
        return refuse("does not begin with a slash", None);
    }
    if path.contains(['?', '#']) {
        return refuse("has a query or fragment", Some("write query parameters under `query`"));
    }
    if path.bytes().any(|byte| !byte.is_ascii_graphic() || b"\"<>\\^`{|}".contains(&byte)) {
        return refuse("has a character no path has", Some("write it percent-encoded"));
    }
    if path.split('/').any(|segment| segment == "." || segment == "..") {
        return refuse("has a dot segment", Some("request paths are matched without them"));
    }
    for (index, _) in path.match_indices('%') {
        let escape = path.as_bytes().get(index + 1..index + 3).unwrap_or_default();
        let decoded = std::str::from_utf8(escape).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match decoded {
            Some(byte) if escape.len() == 2 && escape[0] != b'+' => {
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    return refuse("escapes a character that needs none", Some("write the character itself"));
                }
                if escape.iter().any(u8::is_ascii_lowercase) {
                    return refuse("has a lower-case escape", Some("write escapes as %2F, not %2f"));
                }
            }
            _ => return refuse("has a percent sign that begins no escape", Some("write it as %25")),
        }
    }
    Ok(())
}

/// The routes of one path: a route's number, or a run of the router's list of numbers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Candidates {
    One(u32),
    Run { start: u32, end: u32 },
}

/// The paths of all routes of one host. Most hosts have a few prefixes and nothing else: those are laid
/// out to be read in one or two places.
#[derive(Debug, Default)]
pub(super) struct PathTable {
    /// Up to [`FEW`] prefixes, longest first; more are in `more`.
    few_prefixes: Box<[(Text, Candidates)]>,
    /// Routes of the prefix `/`.
    everything: Option<Candidates>,
    more: Option<Box<More>>,
}

/// Prefixes that are compared one after the other instead of hashing the path at each slash.
const FEW: usize = 6;

type ByPath = HashMap<Text, Candidates, ahash::RandomState>;

#[derive(Debug, Default)]
struct More {
    exact: ByPath,
    regexes: Vec<(Regex, Candidates)>,
    prefixes: ByPath,
    /// The longest prefix in bytes, and the most slashes one has: nothing longer or deeper is looked up.
    longest_prefix: usize,
    deepest_prefix: usize,
    /// Whether a prefix ends in a slash.
    slashed: bool,
}

impl PathTable {
    /// Builds the table from route numbers with their paths, in file order. `arrange` puts the routes of
    /// one path into the order they are tried; it is called once for each path.
    pub fn build<'a>(
        routes: impl IntoIterator<Item = (u32, &'a PathPattern)>,
        mut arrange: impl FnMut(Vec<u32>) -> Candidates,
    ) -> Self {
        let mut paths: Vec<(&PathPattern, Vec<u32>)> = Vec::new();
        let mut known = HashMap::<_, usize, ahash::RandomState>::default();
        for (route, pattern) in routes {
            let place = *known.entry(pattern.key()).or_insert(paths.len());
            match paths.get_mut(place) {
                Some((_, members)) => members.push(route),
                None => paths.push((pattern, vec![route])),
            }
        }
        let (mut table, mut more, mut prefixes) = (PathTable::default(), More::default(), Vec::new());
        for (pattern, members) in paths {
            let candidates = arrange(members);
            match pattern {
                PathPattern::Exact(path) => _ = more.exact.insert(Text::from(&**path), candidates),
                PathPattern::Regex(regex) => more.regexes.push((regex.clone(), candidates)),
                PathPattern::Prefix(path) if &**path == "/" => table.everything = Some(candidates),
                PathPattern::Prefix(path) => prefixes.push((Text::from(&**path), candidates)),
            }
        }
        if prefixes.len() <= FEW {
            prefixes.sort_by_key(|(prefix, _)| Reverse(prefix.as_bytes().len()));
            table.few_prefixes = prefixes.into_boxed_slice();
        } else {
            more.add_prefixes(prefixes);
        }
        if !more.exact.is_empty() || !more.regexes.is_empty() || !more.prefixes.is_empty() {
            table.more = Some(Box::new(more));
        }
        table
    }

    /// The first route in order of precedence that holds the path and that `choose` takes out of the
    /// routes of one path.
    pub fn find(&self, path: &str, choose: impl Fn(Candidates) -> Option<u32>) -> Option<u32> {
        let more = self.more.as_deref();
        more.and_then(|more| more.find_exact(path, &choose))
            .or_else(|| more?.find_regex(path, &choose))
            .or_else(|| self.find_few(path.as_bytes(), &choose))
            .or_else(|| more?.find_prefix(path.as_bytes(), &choose))
            .or_else(|| choose(self.everything?))
    }

    fn find_few(&self, path: &[u8], choose: &impl Fn(Candidates) -> Option<u32>) -> Option<u32> {
        let mut holding = self.few_prefixes.iter().filter(|(prefix, _)| {
            let prefix = prefix.as_bytes();
            path.strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/") || prefix.ends_with(b"/"))
        });
        holding.find_map(|(_, candidates)| choose(*candidates))
    }
}

impl More {
    fn add_prefixes(&mut self, prefixes: Vec<(Text, Candidates)>) {
        for (prefix, _) in &prefixes {
            let prefix = prefix.as_bytes();
            self.longest_prefix = self.longest_prefix.max(prefix.len());
            self.deepest_prefix = self.deepest_prefix.max(memchr::memchr_iter(b'/', prefix).count());
            self.slashed |= prefix.ends_with(b"/");
        }
        self.prefixes = prefixes.into_iter().collect();
    }

    fn find_exact(&self, path: &str, choose: &impl Fn(Candidates) -> Option<u32>) -> Option<u32> {
        choose(*self.exact.get(path.as_bytes())?)
    }

    fn find_regex(&self, path: &str, choose: &impl Fn(Candidates) -> Option<u32>) -> Option<u32> {
        let mut matching = self.regexes.iter().filter(|(regex, _)| regex.is_match(path));
        matching.find_map(|(_, candidates)| choose(*candidates))
    }

    /// Tries the whole path, then the path cut behind and before each of its slashes, longest first.
    fn find_prefix(&self, path: &[u8], choose: &impl Fn(Candidates) -> Option<u32>) -> Option<u32> {
        if self.prefixes.is_empty() {
            return None;
        }
        let prefix = |prefix: &[u8]| choose(*self.prefixes.get(prefix)?);
        if path.len() <= self.longest_prefix
            && let Some(route) = prefix(path)
        {
            return Some(route);
        }
        // A prefix is followed by a slash, hence one byte and one slash more than the largest one has.
        let window = path.get(..=self.longest_prefix).unwrap_or(path);
        let cut = memchr::memchr_iter(b'/', window).nth(self.deepest_prefix);
        let mut rest = cut.and_then(|slash| window.get(..=slash)).unwrap_or(window);
        while let Some(slash) = memchr::memrchr(b'/', rest) {
            let behind = if self.slashed { path.get(..=slash) } else { None };
            if let Some(route) = [behind, path.get(..slash)].into_iter().flatten().find_map(prefix) {
                return Some(route);
            }
            rest = rest.get(..slash)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(paths: &[PathConfig]) -> PathTable {
        let patterns: Vec<_> = paths.iter().map(|path| PathPattern::compile(Some(path)).unwrap()).collect();
        PathTable::build((0..).zip(&patterns), |members| Candidates::One(members[0]))
    }

    fn prefixes(paths: &[&str]) -> PathTable {
        let paths: Vec<_> = paths.iter().map(|path| PathConfig::Prefix((*path).into())).collect();
        table(&paths)
    }

    fn found(table: &PathTable, path: &str) -> Option<u32> {
        table.find(path, accepting(|_| true))
    }

    fn accepting(accept: impl Fn(u32) -> bool) -> impl Fn(Candidates) -> Option<u32> {
        move |candidates| match candidates {
            Candidates::One(route) => accept(route).then_some(route),
            Candidates::Run { .. } => None,
        }
    }

    /// The same prefixes between enough others that they are hashed.
    fn many_prefixes(paths: &[&str]) -> PathTable {
        let others = (0..FEW).map(|n| format!("/other/{n}"));
        let all: Vec<String> = paths.iter().map(|path| (*path).to_owned()).chain(others).collect();
        prefixes(&all.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn prefix_ends_at_a_segment_boundary() {
        for table in [prefixes(&["/v1", "/admin"]), many_prefixes(&["/v1", "/admin"])] {
            for (path, route) in [
                ("/v1", Some(0)),
                ("/v1/", Some(0)),
                ("/v1/x/y/z", Some(0)),
                ("/v10", None),
                ("/v", None),
                ("/V1", None),
                ("/x/v1", None),
                ("/administrator", None),
                ("/admin/x", Some(1)),
                ("*", None),
            ] {
                assert_eq!(found(&table, path), route, "{path}");
            }
        }
    }

    #[test]
    fn prefix_with_a_trailing_slash_holds_only_what_is_below() {
        for table in [prefixes(&["/v1/", "/v1/a/b/"]), many_prefixes(&["/v1/", "/v1/a/b/"])] {
            assert_eq!(found(&table, "/v1"), None);
            assert_eq!(found(&table, "/v1/"), Some(0));
            assert_eq!(found(&table, "/v1/a/b"), Some(0));
            assert_eq!(found(&table, "/v1/a/b/"), Some(1));
            assert_eq!(found(&table, "/v1/a/b/c"), Some(1));
        }
    }

    #[test]
    fn longest_prefix_wins_and_slash_holds_everything() {
        for table in [prefixes(&["/", "/a", "/a/b/c", "/a/b"]), many_prefixes(&["/", "/a", "/a/b/c", "/a/b"])]
        {
            for (path, route) in [
                ("/", 0),
                ("/x/y", 0),
                ("*", 0),
                ("/a/x", 1),
                ("/a/b/x", 3),
                ("/a/b/c", 2),
                ("/a/b/c/d/e", 2),
            ] {
                assert_eq!(found(&table, path), Some(route), "{path}");
            }
            assert_eq!(table.find("/a/b/c", accepting(|route| route != 2)), Some(3));
        }
    }

    #[test]
    fn exact_comes_before_regex_in_order_before_prefix() {
        let table = table(&[
            PathConfig::Prefix("/v1/longer".into()),
            PathConfig::Regex("^/v[0-9]+/longer".into()),
            PathConfig::Regex("^/v1".into()),
            PathConfig::Exact("/v1/longer".into()),
        ]);
        assert_eq!(found(&table, "/v1/longer"), Some(3));
        assert_eq!(found(&table, "/v1/longer/x"), Some(1));
        assert_eq!(found(&table, "/v1/x"), Some(2));
        assert_eq!(table.find("/v1/longer", accepting(|route| route == 0)), Some(0));
    }

    #[test]
    fn paths_no_request_can_have_are_refused() {
        for bad in [
            "", "v1", "/a b", "/a?b", "/a#b", "/a/../b", "/.", "/%2f", "/%41", "/%", "/%2", "/%+1",
            "/\u{e9}", "/a\\b",
        ] {
            assert!(PathPattern::compile(Some(&PathConfig::Prefix(bad.into()))).is_err(), "{bad}");
        }
        for good in ["/", "/a//b", "/a%2Fb", "/%C3%A9", "/a.b/..c", "/a;b=c,d@e:f!$&'()*+"] {
            assert!(PathPattern::compile(Some(&PathConfig::Exact(good.into()))).is_ok(), "{good}");
        }
        assert!(PathPattern::compile(Some(&PathConfig::Regex("(".into()))).is_err());
        assert!(PathPattern::compile(Some(&PathConfig::Regex("a{1000}{1000}".into()))).is_err());
    }
}
