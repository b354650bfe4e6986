//! Configuration files against the library: every fixture has its message, every file under `conf/`
//! loads and survives being printed, and the documentation has the keys the types have. Needs no
//! running gateway.

use portcullis::config::{Config, Loaded, effective, load};
use portcullis::snapshot::{self, Shared};
use portcullis::telemetry::metrics::Metrics;
use portcullis::tls::tickets::TicketKeys;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn at(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn yaml_files(folder: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(at(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no YAML under {folder}");
    files
}

/// Loads under the bare file name, so that messages do not depend on where the repository is.
fn load_named(path: &Path) -> Loaded {
    load::load_text(Path::new(path.file_name().unwrap()), &fs::read_to_string(path).unwrap())
}

fn must_load(name: &str, text: &str) -> Config {
    let loaded = load::load_text(Path::new(name), text);
    assert!(loaded.problems.is_empty(), "{}", loaded.problems);
    loaded.config.unwrap()
}

/// What `portcullis check` says on stderr in the folder of the file.
fn check(path: &Path) -> Option<String> {
    let shared = Shared { metrics: Metrics::new(), tickets: TicketKeys::generate().unwrap() };
    let problems = snapshot::prepare(Some(path), &shared, None).err()?;
    let folder = format!("{}/", path.parent().unwrap().display());
    Some(format!("{problems}\n").replace(&folder, ""))
}

#[test]
fn every_invalid_fixture_has_its_message() {
    let update = std::env::var_os("UPDATE_FIXTURES").is_some();
    for path in yaml_files("tests/fixtures/invalid") {
        let message = check(&path).unwrap_or_else(|| panic!("{} is accepted", path.display()));
        let expected = path.with_extension("expected");
        if update {
            fs::write(&expected, &message).unwrap();
        }
        let expected = fs::read_to_string(&expected).unwrap_or_default();
        assert_eq!(message, expected, "{} (UPDATE_FIXTURES=1 writes it)", path.display());
    }
}

#[test]
fn every_valid_file_loads_and_survives_being_printed() {
    let folders = ["tests/fixtures/valid", "conf", "conf/examples"];
    let files = folders.into_iter().flat_map(yaml_files);
    let mut texts: Vec<(String, String)> =
        files.map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap())).collect();
    texts.push(("conf/portcullis.yaml, all keys".to_owned(), with_optional_keys(&reference())));
    for (name, text) in texts {
        let config = must_load(&name, &text);
        let printed = effective(&config);
        assert_eq!(must_load(&format!("{name} printed"), &printed), config, "{printed}");
        assert_eq!(effective(&must_load(&name, &printed)), printed);
    }
}

#[test]
fn the_embedded_configuration_loads() {
    let loaded = load::embedded();
    assert!(loaded.problems.is_empty(), "{}", loaded.problems);
    let config = loaded.config.unwrap();
    assert_eq!(config.listeners[0].address.to_string(), "0.0.0.0:7999");
    assert_eq!(config.routes.len(), 1);
}

#[test]
fn words_keep_their_meaning_whatever_their_case() {
    use portcullis::config::{AccessLogOutput, DefaultAction, ListenerTls, OnDeny};
    let config = load_named(&at("tests/fixtures/valid/case-of-words.yaml")).config.unwrap();
    assert_eq!(config.access.default, Some(DefaultAction::Deny));
    assert_eq!(config.access.on_deny, OnDeny::Close);
    assert_eq!(config.listeners[0].tls, ListenerTls::Off);
    assert_eq!(config.access_log.output, AccessLogOutput::Off);
}

#[test]
fn default_names_are_unique_and_written_ones_stay() {
    let config = load_named(&at("tests/fixtures/valid/default-names.yaml")).config.unwrap();
    let names: Vec<_> = config.routes.iter().map(|route| route.name()).collect();
    assert_eq!(names, ["a.test/x", "a.test/x#3", "a.test/x#2", "*"]);
}

#[test]
fn an_empty_allow_list_denies() {
    let config = load_named(&at("tests/fixtures/valid/deny-all.yaml")).config.unwrap();
    assert_eq!(config.access.default, Some(portcullis::config::DefaultAction::Deny));
}

#[test]
fn files_that_cannot_be_read_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let problem = |path: &Path| {
        let loaded = portcullis::config::load(path);
        assert!(loaded.config.is_none());
        assert_eq!(loaded.problems.0.len(), 1);
        loaded.problems.to_string().replace(&format!("{}", folder.path().display()), "DIR")
    };
    assert!(problem(&folder.path().join("missing.yaml")).contains("no such file"));
    assert!(problem(folder.path()).contains("is a directory"));

    let latin1 = folder.path().join("latin1.yaml");
    fs::write(&latin1, b"routes:\n  - respond: { body: \"caf\xe9\" }\n").unwrap();
    let expected = "DIR/latin1.yaml:2: not UTF-8: byte 33 is `0xe9` (save the file as UTF-8)";
    assert_eq!(problem(&latin1), expected);

    let large = folder.path().join("large.yaml");
    fs::File::create(&large).unwrap().set_len(50 << 20).unwrap();
    assert!(problem(&large).contains("larger than 16 MiB"));
}

#[test]
fn a_flood_of_problems_ends() {
    let text = format!("access: {{ deny: [{}] }}\nroutes: [{{ respond: {{}} }}]\n", "x, ".repeat(100_000));
    let loaded = load::load_text(Path::new("flood.yaml"), &text);
    assert!(loaded.config.is_none());
    assert_eq!(loaded.problems.0.len(), 1001);
    assert!(loaded.problems.to_string().contains("more than 1000 problems"));
}

#[test]
fn deep_nesting_is_refused() {
    let text = format!("routes: {}{}", "[".repeat(50_000), "]".repeat(50_000));
    assert!(!load::load_text(Path::new("deep.yaml"), &text).problems.is_empty());
}

/// `conf/portcullis.yaml` with its optional keys taken in: lines of `#` and no space behind it. An
/// optional key that stands in the file already (with its default) replaces it.
fn with_optional_keys(text: &str) -> String {
    let key = |line: &str| {
        let rest = line.trim_start();
        (line.len() - rest.len(), rest.split(':').next().unwrap_or(rest).to_owned())
    };
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let Some(taken) = optional(line) else {
            lines.push(line.to_owned());
            continue;
        };
        // The default is the line before it, at the same depth.
        if lines.last().is_some_and(|last| key(last) == key(taken)) {
            lines.pop();
        }
        lines.push(taken.to_owned());
    }
    lines.join("\n")
}

/// An optional key: `#` at the very start, and not one space behind it.
fn optional(line: &str) -> Option<&str> {
    let rest = line.strip_prefix('#')?;
    let explains = rest.is_empty() || (rest.starts_with(' ') && !rest.starts_with("  "));
    (!explains).then_some(rest)
}

fn reference() -> String {
    fs::read_to_string(at("conf/portcullis.yaml")).unwrap()
}

#[test]
fn the_reference_file_has_every_key_and_its_optional_ones_work() {
    let text = with_optional_keys(&reference());
    must_load("conf/portcullis.yaml with its optional keys", &text);
    let keys = load::keys(&text);
    let mut missing: BTreeSet<_> = keys.known.difference(&keys.written).collect();
    // The one key that has no legal value in its place.
    missing.remove(&"routes[].access.trusted_proxies".to_owned());
    assert!(missing.is_empty(), "not in conf/portcullis.yaml: {missing:?}");
}

#[test]
fn the_reference_file_shows_the_defaults() {
    let shown = must_load("conf/portcullis.yaml", &reference());
    let smallest = "routes: [{ name: app, hosts: [app.example.com], path: /, upstream: app }]\n\
                    upstreams: { app: { endpoints: [127.0.0.1:9000] } }";
    let default = must_load("defaults", smallest);
    assert_eq!(shown.routes[0], default.routes[0]);
    let without_routes = |mut config: Config| {
        config.routes.clear();
        config
    };
    assert_eq!(without_routes(shown), without_routes(default));
}

/// The headings of the documentation with the text below each.
fn documented() -> Vec<(String, String)> {
    let text = fs::read_to_string(at("docs/configuration.md")).unwrap();
    text.split("\n### `")
        .skip(1)
        .map(|section| {
            let (key, body) = section.split_once("`\n").unwrap();
            (key.to_owned(), body.to_owned())
        })
        .collect()
}

#[test]
fn the_documentation_has_one_heading_per_key_and_nothing_more() {
    let documented: Vec<String> = documented().into_iter().map(|(key, _)| key).collect();
    let set: BTreeSet<String> = documented.iter().cloned().collect();
    assert_eq!(documented.len(), set.len(), "a heading twice");
    assert_eq!(set, load::keys(&with_optional_keys(&reference())).known);
}

#[test]
fn the_documentation_shows_the_defaults_of_the_code() {
    let smallest = "routes: [{ redirect: { to: / } }, { respond: {} }, { upstream: app, access: {}, mirror: { upstream: app } }]\n\
                    certificates: [{ cert: a, key: b, client_auth: { ca: c } }]\n\
                    upstreams: { NAME: { endpoints: [127.0.0.1:9000], tls: { server_name: a.test }, \
                                         ejection: {}, health_check: {}, sticky: { cookie: c } }, \
                                 app: { endpoints: [127.0.0.1:9001] } }";
    let printed = serde_json::to_value(must_load("defaults", smallest)).unwrap();
    let mut checked = 0;
    for (key, body) in documented() {
        let Some(default) = body.split("- Default: `").nth(1).and_then(|rest| rest.split("`\n").next())
        else {
            continue;
        };
        // Numbers, lists and quoted text are JSON too, words are not.
        let default = normal(serde_json::from_str(default).unwrap_or_else(|_| default.into()));
        let found: Vec<_> = values(&printed, &key).into_iter().map(|value| normal(value.clone())).collect();
        // `certificates: []` is shown by itself and filled for its parts.
        if key != "certificates" && key != "upstreams" {
            assert!(found.contains(&default), "{key}: documented {default:?}, is {found:?}");
            checked += 1;
        }
    }
    assert!(checked > 40, "only {checked} defaults found");
}

/// Durations have several spellings: `60s` is `1m`.
fn normal(value: serde_json::Value) -> serde_json::Value {
    match value.as_str().and_then(|text| text.parse::<portcullis::config::HumanDuration>().ok()) {
        Some(duration) => duration.to_string().into(),
        None => value,
    }
}

/// All values at a key path with `[]` for any element.
fn values<'a>(root: &'a serde_json::Value, path: &str) -> Vec<&'a serde_json::Value> {
    let mut found = vec![root];
    for step in path.split('.') {
        let (key, any) = step.strip_suffix("[]").map_or((step, false), |key| (key, true));
        found = found.into_iter().filter_map(|value| value.get(key)).collect();
        if any {
            found = found.into_iter().filter_map(|value| value.as_array()).flatten().collect();
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is cut out of, put into or moved within a file, reading it ends with a configuration
    /// or with problems.
    #[test]
    fn a_mutilated_file_never_panics(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..40, snippet()), 1..6),
    ) {
        let mut text: Vec<char> = with_optional_keys(&reference()).chars().collect();
        for (place, cut, insert) in edits {
            let start = place.index(text.len());
            let end = (start + cut).min(text.len());
            text.splice(start..end, insert.chars());
        }
        let text: String = text.into_iter().collect();
        let loaded = load::load_text(Path::new("mutilated.yaml"), &text);
        prop_assert!(loaded.config.is_some() || !loaded.problems.is_empty());
        if let Some(config) = loaded.config {
            effective(&config);
        }
    }

    #[test]
    fn noise_never_panics(text in "[ -~\n\t\u{80}-\u{2ff}]{0,200}") {
        let loaded = load::load_text(Path::new("noise.yaml"), &text);
        prop_assert!(!loaded.problems.is_empty());
    }
}

/// What YAML is sensitive to.
fn snippet() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        prop::sample::select(vec![
            ":",
            ": ",
            "- ",
            "\n",
            "\t",
            "{",
            "}",
            "[",
            "]",
            "*a",
            "&a ",
            "!t ",
            "<<: *a",
            "\"",
            "'",
            "|",
            ">",
            "# ",
            "---\n",
            "0",
            "-1",
            "99999999999999999999",
            "~",
            "yes",
            "é",
            "\u{202e}",
            "\u{0}",
            "? ",
        ])
        .prop_map(str::to_owned),
        "[a-z:{} \n]{0,12}",
    ]
}
