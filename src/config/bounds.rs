//! Whether a text may be read as YAML at all: how deep it goes, and how much its aliases make of it. Found out
//! from the stream of its parts, before anything is built from them. Does not know what they mean.

use super::tree::MAX_NODES;
use saphyr_parser::{Event, Parser, ScanError};
use std::collections::HashMap;

/// Deepest nesting; the keys there are need ten.
const MAX_DEPTH: usize = 64;
/// Most text the values may have, aliases followed.
const MAX_TEXT: u64 = 64 << 20;

/// Why a text is not read.
pub(super) enum Unbounded {
    /// It is not YAML, or of a kind whose lines cannot be told.
    Syntax(ScanError),
    /// It is too much: the line where it became so, from 1, and a reason.
    TooMuch(usize, String),
}

/// What a value and all in it come to.
#[derive(Clone, Copy, Default)]
struct Weight {
    nodes: u64,
    text: u64,
}

impl Weight {
    fn add(&mut self, other: Weight) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.text = self.text.saturating_add(other.text);
    }
}

/// Reads the parts of `text` to its end.
pub(super) fn check(text: &str) -> Result<(), Unbounded> {
    // The lists and mappings that are open, outermost first: their anchors, and what is in them so far.
    let mut open: Vec<(usize, Weight)> = Vec::new();
    let mut anchors: HashMap<usize, Weight> = HashMap::new();
    let mut total = Weight::default();
    for part in Parser::new_from_str(text) {
        let (event, span) = part.map_err(Unbounded::Syntax)?;
        let line = span.start.line();
        let (anchor, weight) = match event {
            Event::SequenceStart(anchor, _) | Event::MappingStart(anchor, _) => {
                if open.len() >= MAX_DEPTH {
                    return Err(Unbounded::TooMuch(line, format!("nested more than {MAX_DEPTH} deep")));
                }
                open.push((anchor, Weight::default()));
                (0, Weight { nodes: 1, text: 0 })
            }
            Event::Scalar(text, _, anchor, _) => (anchor, Weight { nodes: 1, text: text.len() as u64 }),
            // Of itself, while it is open: the reader refuses that.
            Event::Alias(anchor) => (0, anchors.get(&anchor).copied().unwrap_or_default()),
            Event::SequenceEnd | Event::MappingEnd => {
                let Some((anchor, weight)) = open.pop() else { continue };
                if let Some((_, around)) = open.last_mut() {
                    around.add(weight);
                }
                if anchor > 0 {
                    anchors.insert(anchor, weight);
                }
                continue;
            }
            _ => continue,
        };
        if anchor > 0 {
            anchors.insert(anchor, weight);
        }
        if let Some((_, around)) = open.last_mut() {
            around.add(weight);
        }
        total.add(weight);
        if total.nodes > u64::from(MAX_NODES) {
            let reason = format!("more than {MAX_NODES} values, counting what aliases repeat");
            return Err(Unbounded::TooMuch(line, reason));
        }
        if total.text > MAX_TEXT {
            let reason = format!("more than {} MiB of text, counting what aliases repeat", MAX_TEXT >> 20);
            return Err(Unbounded::TooMuch(line, reason));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> Option<(usize, String)> {
        match check(text) {
            Ok(()) => None,
            Err(Unbounded::TooMuch(line, reason)) => Some((line, reason)),
            Err(Unbounded::Syntax(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn depth_is_bounded_whatever_follows() {
        assert_eq!(refusal(&format!("a:\n  {}{}", "[".repeat(60), "]".repeat(60))), None);
        let (line, reason) = refusal(&format!("a:\n  {}", "[".repeat(65))).expect("refused");
        assert_eq!((line, reason.as_str()), (2, "nested more than 64 deep"));
        assert!(check(&"[".repeat(1_000_000)).is_err());
    }

    #[test]
    fn aliases_count_what_they_repeat() {
        let long = format!("a: &a \"{}\"\nb: [{}]", "x".repeat(65_536), "*a, ".repeat(20_000));
        assert!(refusal(&long).expect("refused").1.contains("MiB of text"));
        let mut lists = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for n in 1..9 {
            lists += &format!("a{n}: &a{n} [{}]\n", format!("*a{}, ", n - 1).repeat(10));
        }
        assert_eq!(refusal(&lists).expect("refused").0, 7);
        assert_eq!(refusal("a: &a [1, 2]\nb: *a\n"), None);
    }
}
