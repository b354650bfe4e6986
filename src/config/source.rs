//! Where a configuration came from: which key stands on which line. Does not know what keys mean.

use super::Problem;
use super::tree::{Node, Value};
use std::collections::HashSet;
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
        Source { file, written: Some(Arc::new(Written { root, refused })) }
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

    fn locate(&self, path: &str) -> Option<Place<'_>> {
        let written = self.written.as_ref()?;
        let (mut node, mut line) = (&written.root, None);
        let (mut shown, mut rest) = (String::new(), path);
        while !rest.is_empty() {
            let step = match &node.value {
                Value::List(items) => written.item(items, rest),
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

/// One step into the tree.
struct Step<'a, 'p> {
    node: &'a Node,
    line: u32,
    shown: String,
    rest: &'p str,
}

impl Written {
    /// `[2]…`: the third element that was not refused.
    fn item<'a, 'p>(&self, items: &'a [Node], path: &'p str) -> Option<Step<'a, 'p>> {
        let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
        let index: usize = index.parse().ok()?;
        let mut kept = items.iter().enumerate().filter(|(_, item)| !self.refused.contains(&item.id));
        let (written, node) = kept.nth(index)?;
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
