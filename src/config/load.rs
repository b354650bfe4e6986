//! From a YAML file to a [`Config`], with everything that is wrong with it. The only file that knows
//! the YAML library.

use super::bounds::{self, Unbounded};
use super::error::quoted;
use super::file::{self, Unreadable};
use super::read;
use super::record::Keys;
use super::tree::{Node, Value};
use super::{Config, Problem, Problems, Source, validate};
use saphyr_parser::ScanError;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::path::Path;

/// Largest file read, in MiB.
const MAX_FILE_MEBIBYTES: u64 = 16;

/// What reading a file gave: as much of the configuration as could be understood, where it came
/// from, and everything wrong with it.
#[derive(Debug)]
pub struct Loaded {
    /// `None` when the file could not be understood at all. Not to be served when there are
    /// problems: what was refused is missing from it.
    pub config: Option<Config>,
    /// Where it came from.
    pub source: Source,
    /// Empty when the file may be compiled.
    pub problems: Problems,
}

/// The name problems and logs give the embedded configuration.
const EMBEDDED_NAME: &str = "<embedded quickstart>";

/// Reads and validates a file. Never fails: what is wrong is in [`Loaded::problems`].
pub fn load(path: &Path) -> Loaded {
    match read_file(path) {
        Ok(text) => load_text(path, &text),
        Err(problem) => Loaded::refused(path, problem),
    }
}

/// The same for text that was read already; `path` is where it says it came from.
pub fn load_text(path: &Path, text: &str) -> Loaded {
    load_with_keys(path, text, false).0
}

/// The configuration built into the program, for `run` without a file.
pub fn embedded() -> Loaded {
    load_text(Path::new(EMBEDDED_NAME), include_str!("../../conf/quickstart.yaml"))
}

/// The keys a text has, and those it could have where it has any, indices written `[]` and names of
/// the operator's choice `NAME`. For checking documentation against the types.
pub fn keys(text: &str) -> Keys {
    load_with_keys(Path::new(""), text, true).1
}

/// The whole configuration as YAML, every default filled in; it loads back to the same [`Config`].
pub fn effective(config: &Config) -> String {
    let mut config = config.clone();
    config.fill_defaults();
    // Text, numbers, lists and mappings with text keys: nothing YAML cannot write.
    serde_yaml::to_string(&config).unwrap_or_else(|error| format!("# not printable: {error}\n"))
}

impl Loaded {
    fn refused(path: &Path, problem: Problem) -> Loaded {
        Loaded { config: None, source: Source::new(path), problems: Problems(vec![problem]) }
    }
}

fn load_with_keys(path: &Path, text: &str, want_keys: bool) -> (Loaded, Keys) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let root = match parse(path, text) {
        Ok(root) => root,
        Err(problem) => return (Loaded::refused(path, problem), Keys::default()),
    };
    let outcome = read::read::<Config>(path.to_owned(), &root, want_keys);
    let source = Source::with_tree(path.to_owned(), root, outcome.refused);
    let mut problems = Problems(outcome.problems);
    let mut config = outcome.value;
    if let Some(config) = &mut config {
        config.fill_defaults();
        validate::validate(config, &source, &mut problems);
    }
    problems.sort();
    (Loaded { config, source, problems }, outcome.keys)
}

fn parse(path: &Path, text: &str) -> Result<Node, Problem> {
    let whole = |line: Option<usize>, reason: String| Problem {
        file: path.to_owned(),
        line,
        path: String::new(),
        reason,
        hint: None,
    };
    const SMALLEST: &str = "the smallest file has `routes:` with one route";
    if text.lines().all(|line| line.trim_start().is_empty() || line.trim_start().starts_with('#')) {
        return Err(whole(None, "the file is empty".to_owned()).with_hint(SMALLEST));
    }
    let hinted = |line: Option<usize>, reason: String| {
        let problem = whole(line, reason);
        match syntax_hint(text, line) {
            Some(hint) => problem.with_hint(hint),
            None => problem,
        }
    };
    let refused = |error: serde_yaml::Error| {
        hinted(error.location().map(|location| location.line()), syntax_reason(&error))
    };
    bounds::check(text).map_err(|unbounded| match unbounded {
        Unbounded::TooMuch(line, reason) => whole(Some(line), reason),
        Unbounded::Syntax(error) => match usual_syntax_error(text) {
            Some(usual) => refused(usual),
            None => hinted(Some(error.marker().line()), position_reason(&error)),
        },
    })?;
    let mut root = Node::read(serde_yaml::Deserializer::from_str(text)).map_err(refused)?;
    root.mark_lines(text).map_err(|line| {
        let reason = "can be read in more than one way";
        whole(Some(line), reason.to_owned()).with_hint("write plain keys, values and lists")
    })?;
    match &root.value {
        Value::Map(_) => Ok(root),
        Value::Null => Err(whole(None, "the file is empty".to_owned()).with_hint(SMALLEST)),
        _ => {
            let line = usize::try_from(root.line).ok().filter(|line| *line > 0);
            let reason = format!("expected keys and values, found {}", root.describe());
            Err(whole(line, reason).with_hint(SMALLEST))
        }
    }
}

/// What the walk that finds the lines says when it cannot go on.
fn position_reason(error: &ScanError) -> String {
    match error.info() {
        // It looks ahead further than the bound of depth.
        "recursion limit exceeded" => "nested too deeply".to_owned(),
        other => format!("not valid YAML: {other}"),
    }
}

/// Longest text that is parsed only for the sake of a better message; what it costs grows with the square.
const MAX_SECOND_LOOK: usize = 64 << 10;

/// What the YAML library finds wrong with the grammar of `text`; `None` when it takes it. Builds nothing.
fn usual_syntax_error(text: &str) -> Option<serde_yaml::Error> {
    let short = text.len() <= MAX_SECOND_LOOK;
    short.then(|| IgnoredAny::deserialize(serde_yaml::Deserializer::from_str(text)).err())?
}

/// The YAML library's sentence without the place, which the problem has already.
fn syntax_reason(error: &serde_yaml::Error) -> String {
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or(&message);
    match message {
        "deserializing from YAML containing more than one document is not supported" => {
            "more than one YAML document".to_owned()
        }
        "repetition limit exceeded" => "aliases repeat too much".to_owned(),
        "recursion limit exceeded" => "nested too deeply".to_owned(),
        _ => format!("not valid YAML: {message}"),
    }
}

/// What most often causes a syntax error on such a line.
fn syntax_hint(text: &str, line: Option<usize>) -> Option<&'static str> {
    let lines = || text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let near = |number: usize| line.is_none_or(|line| number == line || number + 1 == line);
    let indent = |line: &str| line.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t');
    if lines().any(|(number, line)| near(number) && indent(line)) {
        return Some("indent with spaces, YAML does not allow tabs");
    }
    let (_, line) = lines().find(|(number, _)| Some(*number) == line)?;
    if line.contains('\t') {
        return Some("write a space in place of the tab");
    }
    if [": *", "- *", "[*", ", *"].iter().any(|start| line.contains(start)) {
        return Some("put a value that begins with * in quotes: \"*.example.com\"");
    }
    if ["[::", ", ::"].iter().any(|start| line.contains(start)) {
        return Some("put an IPv6 address that begins with : in quotes: \"::1/128\"");
    }
    // `to: {scheme}://…` reads as a mapping.
    let braced = line.split_once(": {").and_then(|(_, rest)| rest.split_once('}'));
    if braced.is_some_and(|(inside, _)| !inside.contains([':', ','])) {
        return Some("put text that begins with { in quotes");
    }
    None
}

fn read_file(path: &Path) -> Result<String, Problem> {
    let source = Source::new(path);
    let bytes = file::contents(path, MAX_FILE_MEBIBYTES).map_err(|why| match why {
        Unreadable::Io(error) => {
            let problem = source.problem("", format!("cannot be read: {}", plain(&error)));
            match error.kind() {
                std::io::ErrorKind::NotFound => problem.with_hint("name the file with -c FILE"),
                _ => problem,
            }
        }
        Unreadable::Folder => source.problem("", "is a directory").with_hint("name the file in it"),
        Unreadable::NotRegular => source
            .problem("", "is not a regular file, such as a pipe or a device")
            .with_hint("write it to a file first"),
        Unreadable::TooLarge(mebibytes) => source
            .problem("", format!("larger than {mebibytes} MiB"))
            .with_hint("long address lists go into files of their own: { file: … }"),
    })?;
    String::from_utf8(bytes).map_err(|error| not_utf8(&source, &error))
}

fn not_utf8(source: &Source, error: &std::string::FromUtf8Error) -> Problem {
    let valid = error.utf8_error().valid_up_to();
    let bytes = error.as_bytes();
    let line = bytes.iter().take(valid).filter(|byte| **byte == b'\n').count() + 1;
    let byte = bytes.get(valid).copied().unwrap_or_default();
    let reason = format!("not UTF-8: byte {valid} is {}", quoted(&format!("0x{byte:02x}")));
    let mut problem = source.problem("", reason).with_hint("save the file as UTF-8");
    problem.line = Some(line);
    problem
}

/// The operating system's sentence without its number.
fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}
