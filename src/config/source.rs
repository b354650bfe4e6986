//! Where a configuration came from: which key stands on which line. Does not know what keys mean.

use super::Problem;
use super::tree::{Node, Value};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file a configuration was read from: knows on which line each key stands. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Source {
    file: PathBuf,
    written: Option<Arc<Written>>,
}

/// What was written, and which parts of it were refused and are missing from the `Config`.
#[derive(Debug)]
struct Written {
    root: Node,
    refused: HashSet<u32>,
    /// For each list that lost elements, where in the file those that were kept are.
    kept: HashMap<u32, Vec<usize>>,
}

/// Where a key path leads.
struct Place<'a> {
    /// The path with the indices of the file, not those of what was left of it.
    path: String,
    /// Line of the deepest part of the path that is in the file.
    line: Option<usize>,
    /// The value, if the whole path is in the file.
    node: Option<&'a Node>,
}

impl Source {
    /// A file of which nothing is known but its name.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Source { file: file.into(), written: None }
    }

    /// A file that was read; `refused` are the nodes that did not get into the `Config`.
    pub(super) fn with_tree(file: PathBuf, root: Node, refused: HashSet<u32>) -> Self {
        let mut kept = HashMap::new();
        if !refused.is_empty() {
            note_kept(&root, &refused, &mut kept);
        }
        Source { file, written: Some(Arc::new(Written { root, refused, kept })) }
    }

    /// The file itself.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The path a file named in the configuration stands for: relative ones are relative to the
    /// configuration's own folder.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }

    /// A problem at a key path (such as `routes[2].upstream`), on the line where the key stands, or
    /// the nearest one above it when the key was left out. Indices count what is in the `Config`.
    pub fn problem(&self, path: impl Into<String>, reason: impl Into<String>) -> Problem {
        let path = path.into();
        let (line, path) = match self.locate(&path) {
            Some(place) => (place.line, place.path),
            None => (None, path),
        };
        Problem { file: self.file.clone(), line, path, reason: reason.into(), hint: None }
    }

    /// The line a key path stands on, or the nearest one above it.
    pub fn line(&self, path: &str) -> Option<usize> {
        self.locate(path)?.line
    }

    /// The same file without the memory of its lines, for keeping as long as the process lives.
    pub fn without_lines(&self) -> Source {
        Source::new(self.file.clone())
    }

    /// Whether the file has this key, be its value right or refused.
    pub(super) fn is_written(&self, path: &str) -> bool {
        self.locate(path).is_some_and(|place| place.node.is_some())
    }

    /// Whether the value at this key path, or something directly in it, was refused: what is missing
    /// in the `Config` may then be in the file.
    pub(super) fn is_refused(&self, path: &str) -> bool {
        let (Some(written), Some(place)) = (&self.written, self.locate(path)) else { return false };
        let refused = |node: &Node| written.refused.contains(&node.id);
        place.node.is_some_and(|node| {
            refused(node)
                || match &node.value {
                    Value::List(items) => items.iter().any(refused),
                    Value::Map(entries) => entries.iter().any(|entry| refused(&entry.value)),
                    _ => false,
                }
        })
    }

    /// Whether anything in the value at this key path was refused: it is less than what was written.
    pub fn lost_parts(&self, path: &str) -> bool {
        fn lost(node: &Node, refused: &HashSet<u32>) -> bool {
            match &node.value {
                _ if refused.contains(&node.id) => true,
                Value::List(items) => items.iter().any(|item| lost(item, refused)),
                Value::Map(entries) => entries.iter().any(|entry| lost(&entry.value, refused)),
                _ => false,
            }
        }
        let Some(written) = self.written.as_ref().filter(|written| !written.refused.is_empty()) else {
            return false;
        };
        self.locate(path).and_then(|place| place.node).is_some_and(|node| lost(node, &written.refused))
    }

    fn locate(&self, path: &str) -> Option<Place<'_>> {
        let written = self.written.as_ref()?;
        let (mut node, mut line) = (&written.root, None);
        let (mut shown, mut rest) = (String::new(), path);
        while !rest.is_empty() {
            let step = match &node.value {
                Value::List(items) => written.item(node, items, rest),
                Value::Map(_) => written.entry(node, rest),
                _ => None,
            };
            let Some(step) = step else {
                shown.push_str(rest);
                return Some(Place { path: shown, line, node: None });
            };
            shown.push_str(&step.shown);
            (node, rest) = (step.node, step.rest);
            line = usize::try_from(step.line).ok().filter(|line| *line > 0).or(line);
        }
        Some(Place { path: shown, line, node: Some(node) })
    }
}

fn note_kept(node: &Node, refused: &HashSet<u32>, kept: &mut HashMap<u32, Vec<usize>>) {
    match &node.value {
        Value::List(items) => {
            if items.iter().any(|item| refused.contains(&item.id)) {
                let left = items.iter().enumerate().filter(|(_, item)| !refused.contains(&item.id));
                kept.insert(node.id, left.map(|(index, _)| index).collect());
            }
            items.iter().for_each(|item| note_kept(item, refused, kept));
        }
        Value::Map(entries) => entries.iter().for_each(|entry| note_kept(&entry.value, refused, kept)),
        _ => {}
    }
}

/// One step into the tree.
struct Step<'a, 'p> {
    node: &'a Node,
    line: u32,
    shown: String,
    rest: &'p str,
}

impl Written {
    /// `[2]…`: the third element that was not refused.
    fn item<'a, 'p>(&self, list: &Node, items: &'a [Node], path: &'p str) -> Option<Step<'a, 'p>> {
        let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
        let index: usize = index.parse().ok()?;
        let written = match self.kept.get(&list.id) {
            Some(kept) => *kept.get(index)?,
            None => index,
        };
        let node = items.get(written)?;
        Some(Step { node, line: node.line, shown: format!("[{written}]"), rest })
    }

    /// `.key…`: the longest key the path begins with, for keys may hold dots.
    fn entry<'a, 'p>(&self, node: &'a Node, path: &'p str) -> Option<Step<'a, 'p>> {
        let Value::Map(entries) = &node.value else { return None };
        let dot = if path.starts_with('.') { "." } else { "" };
        let path = path.strip_prefix('.').unwrap_or(path);
        let mut found: Option<Step<'a, 'p>> = None;
        for entry in entries {
            let Some(rest) = path.strip_prefix(&*entry.key.text) else { continue };
            let ends = rest.is_empty() || rest.starts_with(['.', '[']);
            if ends && found.as_ref().is_none_or(|step| rest.len() < step.rest.len()) {
                let mut shown = String::from(dot);
                let _ = write!(shown, "{}", entry.key.text);
                found = Some(Step { node: &entry.value, line: entry.line, shown, rest });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::load_text;
    use std::path::Path;

    #[test]
    fn paths_count_what_is_left_and_name_what_was_written() {
        let text = "routes:\n  - bad: 1\n    respond: 7\n  -\n  - respond: {}\n    hosts:\n      - a.test\nupstreams:\n  a.b: { endpoints: [127.0.0.1:1] }\n";
        let source = load_text(Path::new("dir/x.yaml"), text).source;
        // The second route of the file was refused, the third is the second of the configuration.
        let problem = source.problem("routes[1].hosts[0]", "wrong");
        assert_eq!((problem.path.as_str(), problem.line), ("routes[2].hosts[0]", Some(7)));
        assert_eq!(source.problem("routes[1].access.deny", "missing").line, Some(5));
        assert_eq!(source.line("upstreams.a.b.endpoints[0]"), Some(9));
        assert_eq!(source.line("nowhere"), None);
        assert!(source.is_written("routes[0].bad") && source.is_refused("routes[0]"));
        assert!(source.lost_parts("routes[0]") && !source.lost_parts("routes[1]"));
        assert_eq!(source.resolve(Path::new("certs/a.pem")), Path::new("dir/certs/a.pem"));
        assert_eq!(source.without_lines().line("routes"), None);
    }
}
