//! The laws of `docs/ARCHITECTURE.md` that a machine can check, one row each.
//!
//! Reads files only; knows nothing of what the code does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rooms, and the rooms each may import.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("cli", &["*"]),
    ("server", &["*"]),
    ("admin", &["background", "snapshot", "upstream", "telemetry", "config"]),
    ("background", &["snapshot", "upstream", "config", "telemetry"]),
    ("edge", &["snapshot", "tls", "access", "http1", "telemetry", "config"]),
    ("proxy", &["edge", "snapshot", "routing", "upstream", "access", "telemetry", "config"]),
    ("snapshot", &["routing", "filter", "upstream", "access", "tls", "telemetry", "config"]),
    ("filter", &["access", "telemetry", "config"]),
    ("upstream", &["http1", "telemetry", "config"]),
    ("routing", &["config"]),
    ("access", &["config"]),
    ("tls", &["config"]),
    ("http1", &[]),
    ("telemetry", &["config"]),
    ("config", &[]),
];

/// What may stand at the top of the repository, beside dotfiles.
const TOP_LEVEL: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "src",
    "conf",
    "benches",
    "deploy",
    "tests",
    "docs",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "rustfmt.toml",
    "clippy.toml",
    "deny.toml",
];

const FORBIDDEN_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "manager", "misc"];

const FILE_LINES: usize = 500;
const FUNCTION_LINES: usize = 60;

/// A source file, cut up once.
struct File {
    /// Relative to the repository, with `/`.
    path: String,
    text: String,
    /// The text before `#[cfg(test)] mod tests`, comments and string contents blanked.
    code: String,
    /// The whole text, blanked.
    blanked: String,
}

/// A rule: gives what is wrong with a file.
type Rule = fn(&File) -> Vec<String>;

#[test]
fn every_file_keeps_every_rule() {
    let rules: &[(&str, Rule)] = &[
        ("a room imports only rooms below it", imports),
        ("at most 500 lines a file", file_size),
        ("at most 60 lines a function", function_size),
        ("every file starts with `//!`", module_doc),
        ("no catch-all names", names),
        // A pool's endpoints may change between two reloads, with the addresses of a name.
        ("ArcSwap only in src/snapshot/store.rs and src/upstream/pool.rs", |file| {
            only_in(file, "ArcSwap", &["src/snapshot/store.rs", "src/upstream/pool.rs"])
        }),
        ("Deserialize only in src/config/", |file| only_in(file, "Deserialize", &["src/config/"])),
        ("a request body is read, and its end known, only in src/proxy/request_body.rs", |file| {
            let words = ["is_body_done", "read_body_or_idle", "read_request_body"];
            words.iter().flat_map(|word| only_in(file, word, &["src/proxy/request_body.rs"])).collect()
        }),
        ("serde_yaml reads only in src/config/load.rs", |file| {
            only_in(file, "serde_yaml::from", &["src/config/load.rs"])
        }),
        ("sleep in tests only in support/eventually.rs", no_sleep),
        ("no test says how fast the machine is: eventually::DEADLINE is for what hangs", no_haste),
        ("no ignored tests", |file| only_in(file, "#[ignore", &[])),
    ];
    let files = sources();
    assert!(files.len() > 20, "found only {} source files", files.len());
    let mut broken = Vec::new();
    for file in &files {
        for (name, rule) in rules {
            broken.extend(rule(file).into_iter().map(|what| format!("{}: {name}: {what}", file.path)));
        }
    }
    assert!(broken.is_empty(), "{} breaches:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn the_top_level_holds_only_what_is_allowed() {
    let strange: Vec<String> = tracked()
        .iter()
        .filter_map(|path| path.split('/').next())
        .filter(|top| !top.starts_with('.') && !TOP_LEVEL.contains(top))
        .map(str::to_owned)
        .collect();
    assert!(strange.is_empty(), "not allowed at the top level: {strange:?}");
}

#[test]
fn no_file_names_a_package_registry() {
    // Put together here so that this file keeps the rule too.
    let hosts = ["crates", "npmjs", "pypi", "rubygems"]
        .map(|name| format!("{name}.{}", if name == "crates" { "io" } else { "org" }));
    for path in tracked().iter().filter(|path| !path.ends_with("Cargo.lock")) {
        let text = fs::read(root().join(path)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        for host in &hosts {
            assert!(!text.contains(host.as_str()), "{path}: no registry hosts: {host}");
        }
    }
}

#[test]
fn the_image_holds_the_gateway_and_no_tool_of_the_benchmarks() {
    let text = fs::read_to_string(root().join("deploy/Dockerfile")).unwrap();
    let built: Vec<&str> = text.lines().filter(|line| line.contains("cargo build")).collect();
    assert_eq!(built.len(), 1, "{built:?}");
    assert!(built.iter().all(|line| line.ends_with("--bin portcullis")), "{built:?}");
    let copied: Vec<&str> = text.lines().filter(|line| line.contains("target/")).collect();
    assert!(copied.iter().all(|line| line.contains("release/portcullis ")), "{copied:?}");
}

#[test]
fn every_room_stands_in_the_import_table() {
    for entry in fs::read_dir(root().join("src")).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            assert!(MAY_IMPORT.iter().any(|(room, _)| *room == name), "src/{name}: not in the import table");
        }
    }
}

fn imports(file: &File) -> Vec<String> {
    let Some(room) =
        file.path.strip_prefix("src/").and_then(|path| path.split_once('/')).map(|(room, _)| room)
    else {
        return Vec::new();
    };
    let allowed = MAY_IMPORT.iter().find(|(name, _)| *name == room).map_or(&[][..], |(_, allowed)| *allowed);
    let mut broken = Vec::new();
    for used in imported_rooms(&file.code) {
        if used != room && !allowed.contains(&"*") && !allowed.contains(&used.as_str()) {
            broken.push(format!("{room} uses {used}"));
        }
    }
    broken
}

/// The first segment after every `crate::`, also inside `use crate::{a, b::c}`.
fn imported_rooms(code: &str) -> Vec<String> {
    let mut rooms = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(list) => rooms.extend(list_heads(list)),
            None => rooms.push(identifier(rest)),
        }
    }
    rooms.retain(|room| !room.is_empty());
    rooms
}

/// The first identifiers of a `{a, b::{c, d}}` list, of its outermost level.
fn list_heads(list: &str) -> Vec<String> {
    let (mut heads, mut depth, mut expects) = (Vec::new(), 0, true);
    for (at, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => expects = true,
            c if expects && (c.is_alphabetic() || c == '_') => {
                heads.push(identifier(&list[at..]));
                expects = false;
            }
            _ => {}
        }
    }
    heads
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

fn file_size(file: &File) -> Vec<String> {
    let lines = file.text.lines().count();
    if lines > FILE_LINES { vec![format!("{lines} lines")] } else { Vec::new() }
}

fn function_size(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.blanked.lines().collect();
    let mut broken = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let length = item_length(&lines[start..]);
        if length > FUNCTION_LINES {
            broken.push(format!("{name} has {length} (line {})", start + 1));
        }
    }
    broken
}

fn function_name(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "fn")?;
    let qualifiers = ["pub", "const", "async", "unsafe", "extern"];
    let qualified =
        words[..at].iter().all(|word| qualifiers.iter().any(|q| word.starts_with(q)) || *word == "\"\"");
    if qualified { Some(identifier(words.get(at + 1)?)) } else { None }
}

/// Lines from here to the brace that closes the first one; 1 when a `;` comes first.
fn item_length(lines: &[&str]) -> usize {
    let (mut depth, mut opened, mut brackets) = (0, false, 0);
    for (index, line) in lines.iter().enumerate() {
        for character in line.chars() {
            match character {
                '[' | '(' => brackets += 1,
                ']' | ')' => brackets -= 1,
                ';' if !opened && brackets == 0 => return 1,
                '{' => (depth, opened) = (depth + 1, true),
                '}' => depth -= 1,
                _ => {}
            }
            if opened && depth == 0 {
                return index + 1;
            }
        }
    }
    lines.len()
}

fn module_doc(file: &File) -> Vec<String> {
    if file.text.starts_with("//! ") { Vec::new() } else { vec!["it does not".to_owned()] }
}

fn names(file: &File) -> Vec<String> {
    let parts = file.path.trim_end_matches(".rs").split(['/', '_']);
    parts.filter(|part| FORBIDDEN_NAMES.contains(part)).map(str::to_owned).collect()
}

fn only_in(file: &File, word: &str, places: &[&str]) -> Vec<String> {
    let allowed = file.path == "tests/tidy.rs" || places.iter().any(|place| file.path.starts_with(place));
    if !allowed && file.blanked.contains(word) { vec![format!("{word} is used")] } else { Vec::new() }
}

fn no_sleep(file: &File) -> Vec<String> {
    let place = "tests/integration/support/eventually.rs";
    let sleeps = tests_of(file).contains("sleep(") && file.path != place && file.path != "tests/tidy.rs";
    if sleeps { vec!["it sleeps".to_owned()] } else { Vec::new() }
}

/// Upper bounds of a few seconds on what took time. A lower bound is fine, and so is a named one that tells a right
/// span from a wrong one many times as long.
fn no_haste(file: &File) -> Vec<String> {
    let hasty = |line: &&str| {
        let bound =
            line.contains("assert") && line.contains("elapsed() <") && line.contains("Duration::from");
        bound || line.contains("wait_exit(Duration::from")
    };
    tests_of(file).lines().filter(hasty).map(|line| line.trim().to_owned()).collect()
}

/// What of a file is only for tests, blanked.
fn tests_of(file: &File) -> &str {
    if file.path.starts_with("tests/") { &file.blanked } else { &file.blanked[file.code.len()..] }
}

fn sources() -> Vec<File> {
    let mut paths = Vec::new();
    for folder in ["src", "tests", "benches"] {
        collect(&root().join(folder), &mut paths);
    }
    paths.iter().map(|path| File::read(path)).collect()
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        // A build folder may stand beside a crate of its own (tests/fuzz).
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

impl File {
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let path = path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
        File::new(path, text)
    }

    fn new(path: String, text: String) -> Self {
        let blanked = blank(&text);
        let tests = blanked.find("#[cfg(test)]").unwrap_or(blanked.len());
        File { path, code: blanked[..tests].to_owned(), blanked, text }
    }
}

/// The same text with comments, string and character contents replaced by spaces, byte for byte.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                find(bytes, at + 2, b"*/").map_or(bytes.len(), |end| end + 2)
            }
            b'r' if raw_string(bytes, at).is_some() && !within_word(bytes, at) => {
                raw_string(bytes, at).unwrap()
            }
            b'"' => string_end(bytes, at),
            b'\'' => character_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(out).expect("whole characters are blanked")
}

fn within_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() && bytes[at - 1] != b'b' || bytes[at - 1] == b'_')
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    find(bytes, at, b"\n").unwrap_or(bytes.len())
}

fn find(bytes: &[u8], from: usize, needle: &[u8]) -> Option<usize> {
    bytes.get(from..)?.windows(needle.len()).position(|window| window == needle).map(|found| found + from)
}

fn raw_string(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    if bytes.get(at + 1 + hashes) != Some(&b'"') {
        return None;
    }
    let closing = [&b"\""[..], &vec![b'#'; hashes]].concat();
    Some(find(bytes, at + 2 + hashes, &closing).map_or(bytes.len(), |end| end + closing.len()))
}

fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut index = at + 1;
    while index < bytes.len() && bytes[index] != b'"' {
        index += if bytes[index] == b'\\' { 2 } else { 1 };
    }
    (index + 1).min(bytes.len())
}

/// The end of a character literal; `None` for a lifetime.
fn character_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        return find(bytes, at + 3, b"'").map(|end| end + 1);
    }
    (2..=5)
        .map(|width| at + width)
        .find(|end| bytes.get(*end) == Some(&b'\''))
        .filter(|end| {
            let inner = std::str::from_utf8(&bytes[at + 1..*end]);
            inner.is_ok_and(|inner| inner.chars().count() == 1)
        })
        .map(|end| end + 1)
}

/// Tracked files; without git, every file that is not under `target` or a dotfile.
fn tracked() -> Vec<String> {
    let listing = Command::new("git").args(["ls-files"]).current_dir(root()).output();
    match listing {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

mod the_checks_themselves {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File::new(path.to_owned(), text.to_owned())
    }

    #[test]
    fn imports_are_seen_in_every_form_but_not_in_tests_comments_or_strings() {
        let text = "use crate::{config::A, telemetry::{B, edge}, proxy};\nfn f() { crate::edge::run() }\n\
                    // crate::admin\nconst S: &str = \"crate::server\";\n#[cfg(test)]\nmod tests { use crate::cli; }";
        assert_eq!(
            imported_rooms(&file("src/access/a.rs", text).code),
            ["config", "telemetry", "proxy", "edge"]
        );
        assert_eq!(imports(&file("src/access/a.rs", text)).len(), 3);
        assert!(imports(&file("src/cli/a.rs", text)).is_empty());
    }

    #[test]
    fn a_long_function_is_found_whatever_its_strings_hold() {
        let long = format!("fn f() {{\n{}}}\n", "let a = '{'; let b = \"{\"; // {\n".repeat(60));
        assert_eq!(function_size(&file("src/a.rs", &long)), ["f has 62 (line 1)"]);
        assert!(function_size(&file("src/a.rs", "fn f<'a>(x: &'a [u8; 4]) -> u8 {\n 1\n}\n")).is_empty());
        assert!(function_size(&file("src/a.rs", "trait T {\n fn f(&self);\n}\n")).is_empty());
    }

    #[test]
    fn catch_all_names_and_missing_docs_are_found() {
        assert_eq!(names(&file("src/proxy/util.rs", "")), ["util"]);
        assert_eq!(names(&file("src/common/a.rs", "")), ["common"]);
        assert_eq!(module_doc(&file("src/a.rs", "use x;")).len(), 1);
    }

    #[test]
    fn a_word_counts_outside_comments_and_strings_only() {
        let rule = |text: &str| only_in(&file("src/a.rs", text), "ArcSwap", &["src/snapshot/store.rs"]).len();
        assert_eq!(rule("//! ArcSwap\nconst A: &str = r#\"ArcSwap\"#;"), 0);
        assert_eq!(rule("use arc_swap::ArcSwap;"), 1);
    }
}
