//! SIGHUP: a new configuration beside the old one, then one swap. USR1: reopened log files.
//!
//! A reload reads, validates and compiles everything on a thread of its own kind (never on one that
//! serves), refuses what cannot be changed live, applies what can fail, and only then publishes.
//! Whatever goes wrong before that leaves everything as it was. Signals during a reload ask for
//! exactly one more, so the last file always wins.

use super::readiness::{Readiness, ReloadFailure, ReloadOutcome};
use super::signals::Signals;
use super::upstreams::Upstreams;
use super::{descriptors, expiry, fixed, gauges, systemd};
use crate::config::Problems;
use crate::snapshot::{self, Shared, Snapshot, SnapshotStore};
use crate::telemetry::access_log::writer::AccessLogWriter;
use crate::telemetry::logging;
use async_trait::async_trait;
use log::{error, info, warn};
use pingora_core::server::ShutdownWatch;
use pingora_core::services::background::BackgroundService;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// The sockets of the process, for a reload that changes them. This room does not know what they are.
pub trait Listeners: Send + Sync {
    /// Binds what `next` needs and the process does not have yet, beside what serves. Calling the
    /// result makes the change and cannot fail; dropping it undoes everything. `None`: something could
    /// not be bound, and `problems` has it.
    fn prepare(&self, next: &Snapshot, problems: &mut Problems) -> Option<Box<dyn FnOnce()>>;
}

/// Carries out reloads, one at a time. Clones share everything.
#[derive(Clone)]
pub struct Reloader {
    /// The file to read again; `None` for the embedded configuration, which never changes.
    pub path: Option<PathBuf>,
    /// What every snapshot of the process shares.
    pub shared: Shared,
    /// Where the result is published.
    pub store: Arc<SnapshotStore>,
    /// Where the outcome is told.
    pub readiness: Arc<Readiness>,
    /// Whose output may change.
    pub log_writer: Arc<AccessLogWriter>,
    /// Whose sockets may change.
    pub listeners: Arc<dyn Listeners>,
    /// Whose new endpoints are looked at before they serve.
    pub upstreams: Upstreams,
    /// What asks for a reload.
    pub signals: Signals,
}

impl Reloader {
    /// Tells the service manager once the process is ready, then serves HUP and USR1 until
    /// `shutdown` turns true. A HUP that arrived during start-up is served first.
    pub async fn run(&self, mut shutdown: ShutdownWatch) {
        tokio::select! {
            () = self.readiness.until_ready() => {}
            () = asked_to_end(&mut shutdown) => return,
        }
        systemd::ready();
        loop {
            tokio::select! {
                () = self.signals.reload() => self.reload_beside_traffic().await,
                () = self.signals.reopen() => self.reopen(),
                () = asked_to_end(&mut shutdown) => return,
            }
        }
    }

    /// One reload, start to end. Blocks: reads files and compiles.
    pub fn reload(&self) -> ReloadOutcome {
        let Some(path) = self.path.as_deref() else {
            warn!("HUP: the embedded configuration serves, there is no file to read again");
            return self.outcome(Ok(()));
        };
        systemd::reloading();
        self.readiness.reload_begins();
        let begun = Instant::now();
        let result = self.replace(path);
        match &result {
            Ok(generation) => {
                let took = begun.elapsed().as_millis();
                info!("generation {generation} serves, {} read in {took} ms", path.display());
            }
            Err(problems) => {
                self.count_failure();
                for problem in &problems.0 {
                    error!("{problem}");
                }
                let kept = self.store.load().generation;
                error!("reload failed, nothing changed, generation {kept} serves on");
            }
        }
        let outcome = self.outcome(result.map(drop).map_err(|problems| (&problems).into()));
        self.readiness.reload_finished(outcome.clone());
        systemd::ready();
        outcome
    }

    /// Compiles the file beside what serves, and publishes it if nothing is wrong with it.
    fn replace(&self, path: &std::path::Path) -> Result<u64, Problems> {
        let current = self.store.pin();
        let next = snapshot::prepare(Some(path), &self.shared, Some(&current))?;
        let mut problems = fixed::changes(&current.config, &next.config, &next.source);
        if !problems.is_empty() {
            return Err(problems);
        }
        let Some(change_listeners) = self.listeners.prepare(&next, &mut problems) else {
            return Err(problems);
        };
        self.switch_access_log(&current, &next, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        logging::reconfigure(&next.config.log);
        self.log_writer.set_memory(next.config.log.memory);
        self.upstreams.settle(&next);
        self.store.publish(next);
        self.upstreams.published();
        // After the publish: the first connection of a new listener must find its routes.
        change_listeners();
        let serving = self.store.pin();
        // Before the generation: a scrape in between must not see a new one that has not succeeded.
        self.shared.metrics.reload_succeeded();
        gauges::publish(&self.shared.metrics, &serving);
        expiry::tell(&serving);
        if serving.config.listeners != current.config.listeners {
            descriptors::warn_if_short(&serving.config);
        }
        Ok(serving.generation)
    }

    /// The last step that can fail, and so the last before the publish.
    fn switch_access_log(&self, current: &Snapshot, next: &Snapshot, problems: &mut Problems) {
        let output = next.access_log.output();
        if output == current.access_log.output() {
            return;
        }
        if let Err(error) = self.log_writer.set_output(output) {
            problems.push(next.source.problem("access_log.output", format!("cannot be opened: {error}")));
        }
    }

    async fn reload_beside_traffic(&self) {
        let reloader = self.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || reloader.reload()).await {
            // A defect of ours, caught here so that the gateway serves on and says so.
            error!("a reload broke off: {error}");
            self.count_failure();
            let failure = ReloadFailure::new("the reload broke off; the log has the reason");
            self.readiness.reload_finished(self.outcome(Err(failure)));
            systemd::ready();
        }
    }

    /// Compiling made series for what would have served.
    fn count_failure(&self) {
        self.shared.metrics.reload_failed();
        gauges::retain(&self.shared.metrics, &self.store.load());
    }

    fn reopen(&self) {
        info!("reopening log files");
        self.log_writer.reopen();
    }

    fn outcome(&self, result: Result<(), ReloadFailure>) -> ReloadOutcome {
        ReloadOutcome { at: SystemTime::now(), generation: self.store.load().generation, result }
    }
}

#[async_trait]
impl BackgroundService for Reloader {
    async fn start(&self, shutdown: ShutdownWatch) {
        self.run(shutdown).await;
    }
}

async fn asked_to_end(shutdown: &mut ShutdownWatch) {
    // A sender that is gone means the same.
    let _ = shutdown.wait_for(|ending| *ending).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AccessLogOutput, ByteSize};
    use crate::telemetry::metrics::Metrics;
    use crate::tls::tickets::TicketKeys;
    use std::fs;
    use std::time::Duration;
    use tokio::sync::watch;
    use tokio::time::timeout;

    const FIRST: &str = "routes: [{ name: first, hosts: [a.test], respond: { status: 200 } }]\n";
    const SECOND: &str = "routes: [{ name: second, hosts: [a.test], respond: { status: 200 } }]\n";

    /// Listens on nothing; port 1 cannot be bound.
    struct NoSockets;

    impl Listeners for NoSockets {
        fn prepare(&self, next: &Snapshot, problems: &mut Problems) -> Option<Box<dyn FnOnce()>> {
            let taken = next.listeners().iter().any(|listener| listener.address.port() == 1);
            if taken {
                problems.push(next.source.problem("listeners[0].address", "cannot be listened on"));
            }
            (!taken).then(|| Box::new(|| {}) as Box<dyn FnOnce()>)
        }
    }

    struct Fixture {
        folder: tempfile::TempDir,
        reloader: Reloader,
    }

    impl Fixture {
        fn start() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("portcullis.yaml");
            fs::write(&path, FIRST).expect("writes");
            let tickets = TicketKeys::generate().expect("random bytes");
            let shared = Shared { metrics: Metrics::new(), tickets };
            let first = snapshot::prepare(Some(&path), &shared, None).expect("a right file");
            let log_writer =
                AccessLogWriter::start(&AccessLogOutput::Off, shared.metrics.clone(), 1, ByteSize::mib(1));
            let store = Arc::new(SnapshotStore::new(first));
            let reloader = Reloader {
                path: Some(path),
                shared,
                upstreams: Upstreams::new(Arc::clone(&store)).0,
                store,
                readiness: Arc::new(Readiness::new(0)),
                log_writer: log_writer.expect("needs nothing"),
                listeners: Arc::new(NoSockets),
                signals: Signals::silent(),
            };
            Fixture { folder, reloader }
        }

        fn write(&self, text: &str) {
            fs::write(self.folder.path().join("portcullis.yaml"), text).expect("writes");
        }

        fn serving(&self) -> (u64, String) {
            let snapshot = self.reloader.store.pin();
            (
                snapshot.generation,
                snapshot.routes.first().map_or_else(String::new, |route| route.name.clone()),
            )
        }

        fn refused(&self, text: &str) -> ReloadFailure {
            self.write(text);
            let outcome = self.reloader.reload();
            assert_eq!(self.serving(), (1, "first".to_owned()));
            assert_eq!(outcome.generation, 1);
            assert_eq!(self.reloader.readiness.last_reload(), Some(outcome.clone()));
            outcome.result.expect_err("refused")
        }
    }

    #[test]
    fn a_right_file_serves_as_the_next_generation() {
        let fixture = Fixture::start();
        fixture.write(SECOND);
        let outcome = fixture.reloader.reload();
        assert_eq!((outcome.generation, outcome.result), (2, Ok(())));
        assert_eq!(fixture.serving(), (2, "second".to_owned()));
    }

    #[test]
    fn a_broken_file_changes_nothing_until_it_is_mended() {
        let fixture = Fixture::start();
        let failure = fixture.refused("routes: [{ upstrem: app }]\n");
        assert!(failure.first.contains("portcullis.yaml"), "{failure}");
        fixture.refused("");
        fixture.write(SECOND);
        assert!(fixture.reloader.reload().result.is_ok());
        assert_eq!(fixture.serving(), (2, "second".to_owned()));
    }

    #[test]
    fn a_missing_file_changes_nothing() {
        let fixture = Fixture::start();
        fs::remove_file(fixture.folder.path().join("portcullis.yaml")).expect("removes");
        assert!(fixture.reloader.reload().result.is_err());
        assert_eq!(fixture.serving(), (1, "first".to_owned()));
    }

    #[test]
    fn what_cannot_change_live_is_refused_by_key() {
        let fixture = Fixture::start();
        let failure = fixture.refused(&format!("{SECOND}admin: {{ address: \"127.0.0.1:1\" }}\n"));
        assert!(failure.first.contains("admin.address: cannot be changed while running"), "{failure}");
    }

    #[test]
    fn a_port_that_cannot_be_bound_is_refused() {
        let fixture = Fixture::start();
        let failure = fixture.refused(&format!("{SECOND}listeners: [{{ address: \"127.0.0.1:1\" }}]\n"));
        assert!(failure.first.contains("listeners[0].address: cannot be listened on"), "{failure}");
    }

    #[test]
    fn an_access_log_that_cannot_be_opened_is_refused() {
        let fixture = Fixture::start();
        let failure =
            fixture.refused(&format!("{SECOND}access_log: {{ output: missing/folder/access.log }}\n"));
        assert!(failure.first.contains("access_log.output"), "{failure}");
    }

    #[test]
    fn the_embedded_configuration_is_left_alone() {
        let mut fixture = Fixture::start();
        fixture.reloader.path = None;
        assert_eq!(fixture.reloader.reload().result, Ok(()));
        assert_eq!(fixture.serving(), (1, "first".to_owned()));
        assert_eq!(fixture.reloader.readiness.last_reload(), None);
    }

    #[tokio::test]
    async fn a_hup_during_start_up_is_served_once_ready() {
        let fixture = Fixture::start();
        fixture.write(SECOND);
        fixture.reloader.signals.ask_for_reload();
        let (end, ending) = watch::channel(false);
        let running = tokio::spawn({
            let reloader = fixture.reloader.clone();
            async move { reloader.run(ending).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(fixture.serving().0, 1);
        fixture.reloader.readiness.listeners_bound(vec![("edge".to_owned(), ([0, 0, 0, 0], 1).into())]);
        let reloaded = async {
            while fixture.serving().0 < 2 {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), reloaded).await.expect("reloads");
        end.send(true).expect("runs");
        running.await.expect("no panic");
    }
}
