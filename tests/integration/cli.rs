//! The command line: exit codes, problems all at once, the effective configuration.

use crate::support::certificates::Authority;
use crate::support::check::refused;
use crate::support::eventually::{DEADLINE, within};
use crate::support::{Gateway, check, portcullis};
use std::path::{Path, PathBuf};

#[test]
fn version_names_itself() {
    let outcome = portcullis(&["version"]);
    assert_eq!(outcome.code, 0);
    assert!(outcome.stdout.contains(env!("CARGO_PKG_VERSION")), "{outcome:?}");
}

#[test]
fn what_is_not_a_command_is_a_usage_error() {
    for arguments in [&["nosuch"][..], &["run", "--nosuch"], &["check", "-c"], &[]] {
        let outcome = portcullis(arguments);
        assert_eq!(outcome.code, 2, "{arguments:?}: {outcome:?}");
        assert!(!outcome.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn help_is_not_an_error() {
    let outcome = portcullis(&["--help"]);
    assert_eq!(outcome.code, 0);
    for command in ["run", "check", "version"] {
        assert!(outcome.stdout.contains(command), "{command} in {}", outcome.stdout);
    }
}

#[test]
fn a_good_file_is_0_a_bad_or_missing_one_1() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("portcullis.yaml");
    std::fs::write(&file, "routes: [{ respond: { body: hello } }]\n").unwrap();
    assert_eq!(check(&file, &[]).code, 0);
    assert_eq!(check(&dir.path().join("nosuch.yaml"), &[]).code, 1);
    assert_eq!(check(dir.path(), &[]).code, 1);
}

#[test]
fn all_problems_are_reported_in_one_run_with_their_lines() {
    let told = refused(
        "workers: 0\nroutes:\n  - name: a\n    upstrem: [127.0.0.1:1]\n  - name: b\n    upstream: nosuch\n\
         access:\n  deny: [10.0.0.0/33, 10.0.0.1/8]\n",
    );
    for part in [
        "portcullis.yaml:1",
        "portcullis.yaml:4",
        "upstream",
        "portcullis.yaml:6",
        "nosuch",
        "portcullis.yaml:8",
        "access.deny[0]",
        "access.deny[1]",
    ] {
        assert!(told.contains(part), "{part} in\n{told}");
    }
}

#[test]
fn files_that_are_no_configuration_are_refused_quickly() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("portcullis.yaml");
    let bomb = (1..9).map(|n| format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", ")));
    let bomb = format!("a0: &a0 [x]\n{}", bomb.collect::<String>());
    let rows: [(&str, Vec<u8>); 6] = [
        ("empty", Vec::new()),
        ("not UTF-8", b"routes: [{ respond: { body: \"\xff\xfe\" } }]\n".to_vec()),
        ("50 MB", [b"routes: []\n".to_vec(), b"# padding\n".repeat(5 << 20)].concat()),
        ("an alias bomb", bomb.into_bytes()),
        ("deeply nested", "[".repeat(100_000).into_bytes()),
        ("a NUL", b"routes: []\n\0".to_vec()),
    ];
    for (name, content) in rows {
        std::fs::write(&file, content).unwrap();
        let start = std::time::Instant::now();
        let outcome = check(&file, &[]);
        // An alias bomb that goes off takes hours.
        assert!(start.elapsed() < DEADLINE, "{name} took {:?}", start.elapsed());
        assert_eq!(outcome.code, 1, "{name}: {outcome:?}");
        assert!((outcome.stdout + &outcome.stderr).contains("portcullis.yaml"), "{name}");
    }
}

#[test]
fn the_embedded_configuration_passes() {
    assert_eq!(portcullis(&["check"]).code, 0);
}

#[test]
fn run_refuses_what_check_refuses_without_opening_a_port() {
    let mut gateway = Gateway::builder("routes: [{ upstream: nosuch }]\n").spawn();
    let (traffic, admin) = (gateway.address(), gateway.admin_address());
    let seen = within(DEADLINE, || {
        let open = |address: &_| std::net::TcpStream::connect(address).is_ok();
        if open(&traffic) || open(&admin) { Some("open") } else { (!gateway.is_running()).then_some("gone") }
    });
    assert_eq!(seen, Some("gone"));
    assert_eq!(gateway.wait_exit(DEADLINE), 1);
    assert!(gateway.log().contains("nosuch"), "{}", gateway.log());
}

#[test]
fn run_refuses_a_bad_certificate_without_opening_a_port() {
    let authority = Authority::new("root");
    let (good, other) = (authority.issue(&["app.test"]), authority.issue(&["app.test"]));
    let yaml = "routes: [{ respond: {} }]\ncertificates: [{ cert: app.pem, key: app.key }]\n";
    for (name, key) in [("missing", None), ("of another", Some(other.key_pem())), ("no PEM", Some(vec![0]))] {
        let mut builder = Gateway::builder(yaml).file("app.pem", good.chain_pem());
        if let Some(key) = key {
            builder = builder.file("app.key", key);
        }
        let mut gateway = builder.spawn();
        let (traffic, admin) = (gateway.address(), gateway.admin_address());
        let seen = within(DEADLINE, || {
            let open = |address: &_| std::net::TcpStream::connect(address).is_ok();
            if open(&traffic) || open(&admin) {
                Some("open")
            } else {
                (!gateway.is_running()).then_some("gone")
            }
        });
        assert_eq!(seen, Some("gone"), "{name}");
        assert_eq!(gateway.wait_exit(DEADLINE), 1, "{name}");
        assert!(gateway.log().contains("certificates[0].key"), "{name}: {}", gateway.log());
    }
}

#[test]
fn the_effective_configuration_is_itself_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("portcullis.yaml");
    std::fs::write(
        &file,
        "routes:\n  - { hosts: [app.test], path: /v1, headers: { x: y }, upstream: [127.0.0.1:9000] }\n  \
         - { path: { regex: ^/r }, query: { a: { present: true } }, upstream: [{ app: 90 }, { app-next: 10 }] }\n\
         upstreams:\n  app: { endpoints: [127.0.0.1:1] }\n  app-next: { endpoints: [{ address: 127.0.0.1:2, weight: 3 }] }\n\
         access: { allow: [10.0.0.0/8], trusted_proxies: [10.0.0.0/8] }\nlimits: { body: 3MiB, header_timeout: 1500ms }\n",
    )
    .unwrap();
    let first = check(&file, &["--effective"]);
    assert_eq!(first.code, 0, "{first:?}");
    for key in ["listeners:", "7999", "7998", "access_log:", "shutdown:", "header_timeout: 1500ms", "3MiB"] {
        assert!(first.stdout.contains(key), "{key} in {}", first.stdout);
    }
    let again = dir.path().join("again.yaml");
    std::fs::write(&again, &first.stdout).unwrap();
    let second = check(&again, &["--effective"]);
    assert_eq!((second.code, second.stdout), (0, first.stdout), "{}", second.stderr);
}

#[test]
fn every_file_under_conf_and_the_valid_fixtures_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let copy = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for folder in ["conf", "tests/fixtures/valid"] {
        copy_folder(&root.join(folder), &copy.path().join(folder), &mut files);
    }
    assert!(!files.is_empty(), "no configuration under conf/");
    let authority = Authority::new("examples");
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "yaml")) {
        make_missing_certificates(file, &authority);
        let outcome = check(file, &[]);
        assert_eq!(outcome.code, 0, "{}: {outcome:?}", file.display());
    }
}

/// Copies a folder; every copied file is pushed.
fn copy_folder(from: &Path, to: &Path, copied: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(from) else { return };
    std::fs::create_dir_all(to).unwrap();
    for path in entries.map(|entry| entry.unwrap().path()) {
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target, copied);
        } else {
            std::fs::copy(&path, &target).unwrap();
            copied.push(target);
        }
    }
}

/// Certificates belong to operators and are not kept beside the examples: each `NAME.pem` a file
/// names under `certs/` is made with its `NAME.key`, for `NAME.example.com`.
fn make_missing_certificates(file: &Path, authority: &Authority) {
    let text = std::fs::read_to_string(file).unwrap();
    for word in
        text.split([' ', '\n', ',', '"']).filter(|word| word.starts_with("certs/") && word.ends_with(".pem"))
    {
        let path = file.parent().unwrap().join(word);
        let name = path.file_stem().unwrap().to_str().unwrap();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        authority.issue(&[&format!("{name}.example.com")]).write(path.parent().unwrap(), name);
    }
}

#[test]
fn check_takes_a_file_by_itself_and_says_what_it_checks_without() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("portcullis.yaml");
    std::fs::write(&file, "routes: [{ respond: { body: hello } }]\n").unwrap();
    let outcome = portcullis(&["check", file.to_str().unwrap()]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(outcome.stdout.contains("portcullis.yaml: ok"), "{outcome:?}");
    let outcome = portcullis(&["check"]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(outcome.stdout.contains("`portcullis check FILE` checks a file"), "{outcome:?}");
}
