//! The invariants of the fuzz targets (`tests/fuzz`), held against their seeds: so the targets cannot rot, and
//! what a fuzzer once found stays mended.
//!
//! Runs no fuzzer; how to is in `tests/fuzz/README.md`.

#[path = "fuzz/invariants/forwarding_headers.rs"]
mod forwarding_headers;
#[path = "fuzz/invariants/host.rs"]
mod host;
#[path = "fuzz/invariants/proxy_header.rs"]
mod proxy_header;
#[path = "fuzz/invariants/request_target.rs"]
mod request_target;

use std::fs;
use std::path::{Path, PathBuf};

/// Panics when an invariant does not hold.
type Check = fn(&[u8]);

const TARGETS: [(&str, Check); 4] = [
    ("forwarding_headers", forwarding_headers::check),
    ("host", host::check),
    ("proxy_header", proxy_header::check),
    ("request_target", request_target::check),
];

#[test]
fn seeds_and_their_neighbours_keep_the_invariants() {
    for (name, check) in TARGETS {
        let seeds = files(&folder("seeds").join(name));
        assert!(seeds.len() >= 10, "{name} has {} seeds", seeds.len());
        for path in seeds {
            println!("{}", path.display());
            neighbours(&fs::read(&path).unwrap(), check);
        }
    }
}

#[test]
fn every_target_has_its_file_and_its_row() {
    for place in ["fuzz_targets", "invariants", "seeds"] {
        let mut found: Vec<String> = files(&folder(place)).iter().map(|path| stem(path)).collect();
        found.sort();
        let listed: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
        assert_eq!(found, listed, "{place}");
    }
    let manifest = fs::read_to_string(folder("Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
    }
}

/// The bytes, every beginning of them, and each byte once replaced by a few that mean something somewhere.
fn neighbours(seed: &[u8], check: Check) {
    for end in 0..=seed.len() {
        check(&seed[..end]);
    }
    let mut changed = seed.to_vec();
    for at in 0..seed.len() {
        for byte in *b"\0 \n%/.;:,\"[]=A9\xff" {
            changed[at] = byte;
            check(&changed);
        }
        changed[at] = seed[at];
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz").join(name)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}
