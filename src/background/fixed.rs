//! Which keys cannot be changed while the process runs.
//!
//! Workers and the admin address are set up once, before traffic. A reload that
//! would change one is refused as a whole and names every such key: half a file never serves.

use crate::config::{Config, Problems, Source};

const REASON: &str = "cannot be changed while running: restart";

/// One problem for each fixed key whose value in `next`, written in `source`, is not what runs.
pub fn changes(running: &Config, next: &Config, source: &Source) -> Problems {
    let mut problems = Problems::default();
    for key in changed_keys(running, next) {
        problems.push(source.problem(key, REASON));
    }
    problems
}

fn changed_keys(running: &Config, next: &Config) -> Vec<String> {
    let mut keys = Vec::new();
    // `auto` and the number it stands for are the same.
    if running.workers.resolve() != next.workers.resolve() {
        keys.push("workers".to_owned());
    }
    if running.admin.address != next.admin.address {
        keys.push("admin.address".to_owned());
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Workers, load};
    use std::path::Path;

    fn config() -> Config {
        let text = "routes: [{ hosts: [a.test], respond: { status: 200 } }]\n";
        load::load_text(Path::new("a.yaml"), text).config.expect("a valid file")
    }

    #[test]
    fn the_same_file_changes_nothing() {
        assert!(changed_keys(&config(), &config()).is_empty());
    }

    #[test]
    fn auto_is_the_number_it_stands_for() {
        let mut next = config();
        next.workers = Workers::Count(u16::try_from(Workers::Auto.resolve()).expect("small"));
        assert!(changed_keys(&config(), &next).is_empty());
    }

    #[test]
    fn every_changed_key_is_named() {
        let mut next = config();
        next.workers = Workers::Count(1000);
        next.admin.address = ([127, 0, 0, 1], 1).into();
        let keys = changed_keys(&config(), &next);
        assert_eq!(keys, ["workers", "admin.address"]);
    }

    #[test]
    fn routes_and_listeners_may_change() {
        let mut next = config();
        next.listeners[0].address = ([127, 0, 0, 1], 2).into();
        next.listeners.push(next.listeners[0].clone());
        next.routes[0].hosts = vec!["b.test".to_owned()];
        assert!(changed_keys(&config(), &next).is_empty());
    }
}
