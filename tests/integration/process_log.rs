//! The process's own log when nobody reads it: traffic goes on, what is lost is counted and told.

use crate::support::Gateway;
use crate::support::eventually::{DEADLINE, until};

/// An upstream whose endpoints are ejected by the first request, which the log tells of.
const YAML: &str = "log: { memory: 1MiB }\n\
    routes: [{ hosts: [own.test], respond: { body: hello } }, { hosts: [app.test], upstream: app }]\n\
    upstreams: { app: { endpoints: [\"127.0.0.1:1\", \"127.0.0.1:2\"], ejection: { failures: 1, max_percent: 100 } } }\n";

fn dropped(gateway: &Gateway) -> f64 {
    gateway.metrics().get("portcullis_log_lines_total", &[("result", "dropped")]).expect("a series")
}

#[test]
fn a_standard_error_nobody_reads_stops_nothing() {
    let (mut reader, pipe) = std::io::pipe().expect("a pipe");
    let mut gateway = Gateway::builder(YAML).stderr(pipe).start();
    // Each refused reload says what is wrong in some hundred lines.
    let refused = format!("{YAML}{}", (0..100).map(|n| format!("bogus{n}: 1\n")).collect::<String>());
    gateway.write_config(&refused);
    let reloads = || gateway.metrics().sum("portcullis_config_reloads_total", &[]);
    until("a log that loses lines", || {
        let before = reloads();
        gateway.sighup();
        until("a finished reload", || reloads() > before);
        dropped(&gateway) > 0.0
    });
    for _ in 0..4 {
        assert_eq!(gateway.get("app.test", "/").status, 502);
        assert_eq!(gateway.get("own.test", "/").text(), "hello");
    }
    assert_eq!(gateway.admin("/livez").status, 200);
    // Whoever reads again learns what is missing.
    let lost = dropped(&gateway);
    let told = std::thread::spawn(move || {
        std::io::BufRead::lines(std::io::BufReader::new(&mut reader))
            .map_while(Result::ok)
            .collect::<Vec<_>>()
    });
    until("room in the log", || {
        gateway.sighup();
        gateway.metrics().sum("portcullis_log_lines_total", &[("result", "written")]) > lost
    });
    gateway.term();
    assert_eq!(gateway.wait_exit(DEADLINE), 0);
    let lines = told.join().expect("a reader");
    let tells = lines.iter().find(|line| line.contains("lines of this log are lost"));
    assert!(tells.expect("a line that tells of it").contains(" WARN "));
    assert!(lines.iter().any(|line| line.contains("draining for at most")), "the last lines are missing");
}

#[test]
fn a_process_leaves_although_nobody_reads_its_log() {
    let (_reader, pipe) = std::io::pipe().expect("a pipe");
    let mut gateway = Gateway::builder(YAML).stderr(pipe).start();
    let refused = format!("{YAML}{}", (0..100).map(|n| format!("bogus{n}: 1\n")).collect::<String>());
    gateway.write_config(&refused);
    until("a log that loses lines", || {
        gateway.sighup();
        dropped(&gateway) > 0.0
    });
    gateway.term();
    assert_eq!(gateway.wait_exit(DEADLINE), 0);
}
