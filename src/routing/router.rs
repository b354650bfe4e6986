//! The order in which rules are tried, compiled so that a lookup does not grow with their number.
//!
//! Host first: exact, then the longest wildcard, then rules without hosts. When no rule of a more
//! specific host takes the request the next one is tried. Within a host: exact path, then regular
//! expressions in file order, then the longest prefix. On one path: more predicates first, then file
//! order. Hosts, exact paths and prefixes are found by hash; only regular expressions of one host and
//! rules that differ in nothing but predicates are tried one after the other.

use super::RequestView;
use super::host::HostPattern;
use super::path::{Candidates, PathTable};
use super::predicate::Predicates;
use super::rule::{Rule, hold};
use super::text::Text;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Finds the value for a request.
#[derive(Debug)]
pub struct Router<T> {
    entries: Box<[Entry<T>]>,
    /// Numbers of routes that share host and path, in the order they are tried.
    order: Box<[u32]>,
    exact: ByHost,
    below: ByHost,
    /// The longest name in `below`: a longer suffix of a host is not looked up.
    longest_below: usize,
    any: Option<PathTable>,
}

type ByHost = HashMap<Text, PathTable, ahash::RandomState>;

#[derive(Debug)]
struct Entry<T> {
    predicates: Option<Box<Predicates>>,
    value: T,
}

/// A route that can never be reached; both numbers are places in the list given to [`Router::build`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shadowed {
    /// The route nothing reaches.
    pub route: usize,
    /// A route that takes its requests (those of its first host).
    pub by: usize,
}

impl<T> Router<T> {
    /// Compiles rules, given in file order, and names those that can never be reached: for each of their
    /// hosts, a rule with the same path that is tried earlier takes everything they would.
    pub fn build(rules: Vec<Rule<T>>) -> (Router<T>, Vec<Shadowed>) {
        let mut members: Vec<(&HostPattern, Vec<u32>)> = Vec::new();
        let mut known = HashMap::<&HostPattern, usize, ahash::RandomState>::default();
        for (number, rule) in (0..).zip(&rules) {
            for host in &rule.hosts {
                let place = *known.entry(host).or_insert(members.len());
                match members.get_mut(place) {
                    Some((_, rules)) => rules.push(number),
                    None => members.push((host, vec![number])),
                }
            }
        }
        let mut shadows = Shadows { rules: &rules, by: vec![Vec::new(); rules.len()], order: Vec::new() };
        let (mut exact, mut below, mut any) = (ByHost::default(), ByHost::default(), None);
        for (host, numbers) in members {
            let paths =
                numbers.iter().filter_map(|number| Some((*number, &rules.get(*number as usize)?.path)));
            let table = PathTable::build(paths, |members| shadows.arrange(members));
            match host {
                HostPattern::Exact(name) => _ = exact.insert(Text::from(&**name), table),
                HostPattern::Below(name) => _ = below.insert(Text::from(&**name), table),
                HostPattern::Any => any = Some(table),
            }
        }
        let (order, shadowed) = shadows.finish();
        let longest_below = below.keys().map(|name| name.as_bytes().len()).max().unwrap_or(0);
        let entries =
            rules.into_iter().map(|rule| Entry { predicates: rule.predicates, value: rule.value }).collect();
        (Router { entries, order, exact, below, longest_below, any }, shadowed)
    }

    /// The value of the route that takes the request. Takes no lock; allocates only to match a query
    /// value that has escapes against a regular expression.
    pub fn find(&self, request: &RequestView<'_>) -> Option<&T> {
        let number = self
            .find_exact(request)
            .or_else(|| self.find_below(request))
            .or_else(|| self.find_in(self.any.as_ref()?, request))?;
        self.entries.get(number as usize).map(|entry| &entry.value)
    }

    /// The values of all routes, in file order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|entry| &entry.value)
    }

    /// How many routes there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn find_exact(&self, request: &RequestView<'_>) -> Option<u32> {
        self.find_in(self.exact.get(request.host.as_bytes())?, request)
    }

    /// Tries the host without its first label, then without its first two, …
    fn find_below(&self, request: &RequestView<'_>) -> Option<u32> {
        if self.below.is_empty() {
            return None;
        }
        let dots = memchr::memchr_iter(b'.', request.host.as_bytes());
        let mut parents = dots.filter_map(|dot| request.host.get(dot + 1..));
        parents.find_map(|parent| {
            if parent.len() > self.longest_below {
                return None;
            }
            self.find_in(self.below.get(parent.as_bytes())?, request)
        })
    }

    fn find_in(&self, table: &PathTable, request: &RequestView<'_>) -> Option<u32> {
        let takes = |number: &u32| {
            self.entries.get(*number as usize).is_some_and(|entry| hold(&entry.predicates, request))
        };
        table.find(request.path, |candidates| match candidates {
            Candidates::One(number) => Some(number).filter(takes),
            Candidates::Run { start, end } => {
                self.order.get(start as usize..end as usize)?.iter().copied().find(takes)
            }
        })
    }
}

/// Rules of one host and path that each later one is compared with to find out whether it is covered: with all
/// of them the time would grow with their square.
const MOST_COMPARED: usize = 1000;

/// Puts the rules of one host and path into order, and collects those an earlier one covers.
struct Shadows<'a, T> {
    rules: &'a [Rule<T>],
    /// For each rule, who covers it; one entry for each of its hosts where it is covered.
    by: Vec<Vec<u32>>,
    order: Vec<u32>,
}

impl<T> Shadows<'_, T> {
    fn arrange(&mut self, mut candidates: Vec<u32>) -> Candidates {
        if let [number] = *candidates {
            return Candidates::One(number);
        }
        let rule = |number: u32| self.rules.get(number as usize);
        candidates.sort_by_key(|number| (Reverse(rule(*number).map(Rule::predicate_count)), *number));
        for (place, number) in candidates.iter().enumerate() {
            let (Some(late), earlier) = (rule(*number), candidates.iter().take(place.min(MOST_COMPARED)))
            else {
                continue;
            };
            let covering = earlier
                .copied()
                .find(|early| rule(*early).is_some_and(|early| early.written.cover(&late.written)));
            if let (Some(by), Some(covered)) = (covering, self.by.get_mut(*number as usize)) {
                covered.push(by);
            }
        }
        let start = self.order.len() as u32;
        self.order.append(&mut candidates);
        Candidates::Run { start, end: self.order.len() as u32 }
    }

    fn finish(self) -> (Box<[u32]>, Vec<Shadowed>) {
        let everywhere = self.by.iter().zip(self.rules).enumerate().filter_map(|(route, (by, rule))| {
            let first = *by.first()? as usize;
            (by.len() == rule.hosts.len()).then_some(Shadowed { route, by: first })
        });
        let shadowed = everywhere.collect();
        (self.order.into_boxed_slice(), shadowed)
    }
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
