//! From a YAML file to a [`Config`].

use super::{Config, Problem, Problems};
use std::path::{Path, PathBuf};

/// What reading a file gave: as much of the configuration as could be understood, where it came
/// from, and everything wrong with it.
#[derive(Debug)]
pub struct Loaded {
    /// `None` when the file could not be understood at all.
    pub config: Option<Config>,
    /// Where it came from.
    pub source: Source,
    /// Empty when the file may be compiled.
    pub problems: Problems,
}

/// The file a configuration was read from: knows on which line each key stands.
#[derive(Debug, Clone, Default)]
pub struct Source {
    file: PathBuf,
}

impl Source {
    /// The file itself.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The path a file named in the configuration stands for: relative ones are relative to the
    /// configuration's own folder.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }

    /// A problem at a key path (such as `routes[2].upstream`), on the line where the key stands.
    pub fn problem(&self, path: impl Into<String>, reason: impl Into<String>) -> Problem {
        Problem { file: self.file.clone(), line: None, path: path.into(), reason: reason.into(), hint: None }
    }
}

/// Reads and validates a file. Never fails: what is wrong is in [`Loaded::problems`].
pub fn load(path: &Path) -> Loaded {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    load_text(path, &text)
}

/// The same for text that was read already; `path` is where it says it came from.
pub fn load_text(path: &Path, text: &str) -> Loaded {
    let source = Source { file: path.to_owned() };
    match serde_yaml::from_str(text) {
        Ok(config) => Loaded { config: Some(config), source, problems: Problems::default() },
        Err(error) => {
            let problems = Problems(vec![source.problem("", error.to_string())]);
            Loaded { config: None, source, problems }
        }
    }
}
