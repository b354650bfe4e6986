//! Problems of a configuration: where, what and how to mend it. Does not know what can go wrong.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

/// One thing wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file it was found in.
    pub file: PathBuf,
    /// Line in that file, from 1.
    pub line: Option<usize>,
    /// Key path, such as `routes[2].upstream`; empty when it concerns the whole file.
    pub path: String,
    /// What is wrong.
    pub reason: String,
    /// How to mend it.
    pub hint: Option<String>,
}

impl Problem {
    /// The same problem with a hint how to mend it.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        f.write_str(": ")?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.reason)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

/// Most problems listed: more would bury the first, and cost time without bound.
pub(super) const MAX_PROBLEMS: usize = 1000;

/// Everything wrong with a configuration; one line each when displayed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Adds one.
    pub fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// Adds all of `other`.
    pub fn extend(&mut self, other: Problems) {
        self.0.extend(other.0);
    }

    /// Adds what a later look at the same configuration found, but not where something was found
    /// already, at the place or in it: that would be the same in other words, or a consequence.
    /// Then sorts.
    pub fn complete_with(&mut self, later: Problems) {
        let mut known: HashSet<(PathBuf, String)> = HashSet::new();
        for problem in &self.0 {
            let ends = problem.path.match_indices(['.', '[']).map(|(end, _)| end);
            for part in ends.chain([problem.path.len()]).filter_map(|end| problem.path.get(..end)) {
                known.insert((problem.file.clone(), part.to_owned()));
            }
        }
        let is_new = |problem: &Problem| !known.contains(&(problem.file.clone(), problem.path.clone()));
        self.0.extend(later.0.into_iter().filter(is_new));
        self.sort();
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts them in file order, those without a line first, and keeps the first 1,000, saying so; call
    /// it before showing them.
    pub fn sort(&mut self) {
        self.order();
        if self.0.len() <= MAX_PROBLEMS {
            return;
        }
        self.0.truncate(MAX_PROBLEMS);
        let notice = self.0.first().map(|first| Problem {
            file: first.file.clone(),
            line: None,
            path: String::new(),
            reason: format!("more than {MAX_PROBLEMS} problems, these are the first"),
            hint: None,
        });
        self.0.retain(|problem| Some(problem) != notice.as_ref());
        self.0.extend(notice);
        self.order();
    }

    fn order(&mut self) {
        self.0.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// What is wrong with one written value, by itself: no file, no key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueError {
    /// What is wrong.
    pub reason: String,
    /// How to mend it.
    pub hint: Option<String>,
}

/// Stands between reason and hint where a [`ValueError`] travels through serde as text.
pub(super) const HINT_MARK: char = '\u{1f}';

impl ValueError {
    /// An error without a hint.
    pub fn new(reason: impl Into<String>) -> Self {
        ValueError { reason: reason.into(), hint: None }
    }

    /// The same with a hint how to mend it.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// As an error of a deserializer.
    pub(super) fn into_serde<E: serde::de::Error>(self) -> E {
        match self.hint {
            Some(hint) => E::custom(format_args!("{}{HINT_MARK}{hint}", self.reason)),
            None => E::custom(self.reason),
        }
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for ValueError {}

impl From<ValueError> for String {
    fn from(error: ValueError) -> String {
        error.to_string()
    }
}

/// A written value as it is quoted in a reason: escaped, and cut when it is long.
pub(super) fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    let shown: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    let shown = shown.replace("\\\"", "\"").replace("\\'", "'").replace("\\\\", "\\");
    match text.chars().nth(LONGEST) {
        Some(_) => format!("`{shown}…`"),
        None => format!("`{shown}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    #[test]
    fn a_later_look_adds_only_what_is_new() {
        let source = Source::new("x.yaml");
        let mut problems = Problems(vec![source.problem("routes[0].path", "not a path")]);
        let later = [
            source.problem("routes[0].path", "cannot be compiled"),
            source.problem("routes[0]", "takes every request"),
            source.problem("routes[0].hosts", "new"),
            source.problem("certificates[0].cert", "missing"),
        ];
        problems.complete_with(Problems(later.to_vec()));
        let reasons: Vec<&str> = problems.0.iter().map(|problem| problem.reason.as_str()).collect();
        assert_eq!(reasons, ["not a path", "new", "missing"]);
    }

    #[test]
    fn quoted_text_is_escaped_and_cut() {
        assert_eq!(quoted("a\n\u{202e}\"b\""), "`a\\n\\u{202e}\"b\"`");
        assert!(quoted(&"x".repeat(500)).len() < 70);
    }
}
