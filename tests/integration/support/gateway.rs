//! The real binary on free ports, with a configuration in a folder of its own.
//!
//! Stopped when dropped; when the test panics, its log is printed.

use super::client::{Connection, Stream};
use super::eventually::{self, DEADLINE};
use super::metrics::Metrics;
use super::origin::Origin;
use super::ports::Port;
use super::response::Response;
use super::tls::TlsClient;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// Exit code of a gateway that could not start.
pub const COULD_NOT_START: i32 = 3;

/// A gateway to be. The configuration may use `{PORT}`, `{PORT2}`, `{PORT3}`, `{ADMIN}`, `{DIR}` and what
/// [`Builder::set`] adds; `listeners`, `admin` and `workers` are filled in when left out.
pub struct Builder {
    template: String,
    values: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    files: Option<u64>,
    stderr: Option<Stdio>,
    dir: TempDir,
}

/// A running gateway.
pub struct Gateway {
    child: Child,
    dir: TempDir,
    values: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    port: u16,
    admin: u16,
    /// Every port its configuration may name.
    held: Arc<[Port; 4]>,
    stdout: Lines,
    stderr: Lines,
}

/// Lines of one output, as they come.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Builder {
    /// Sets a placeholder: `set("ORIGIN", …)` fills `{ORIGIN}`.
    pub fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.values.push((format!("{{{name}}}"), value.to_string()));
        self
    }

    /// Fills `{ORIGIN}` with an origin's address.
    pub fn origin(self, origin: &Origin) -> Self {
        self.set("ORIGIN", origin.address())
    }

    /// Sets a variable of its environment.
    pub fn environment(mut self, name: &str, value: impl ToString) -> Self {
        self.environment.push((name.to_owned(), value.to_string()));
        self
    }

    /// Lets it have this many files open and no more.
    pub fn open_files(mut self, most: u64) -> Self {
        self.files = Some(most);
        self
    }

    /// Gives it another standard error, which [`Gateway::log`] then does not see.
    pub fn stderr(mut self, stderr: impl Into<Stdio>) -> Self {
        self.stderr = Some(stderr.into());
        self
    }

    /// Writes a file beside the configuration.
    pub fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        std::fs::write(self.dir.path().join(name), content).expect("a file");
        self
    }

    /// The folder of the configuration.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts it and waits until it is ready.
    pub fn start(self) -> Gateway {
        let mut gateway = self.spawn();
        if let Err(code) = gateway.wait_ready() {
            panic!("not ready; exit code {code:?}");
        }
        gateway
    }

    /// Starts it without waiting.
    pub fn spawn(self) -> Gateway {
        let held = Arc::new([(); 4].map(|()| Port::free()));
        let (port, admin) = (held[0].number(), held[3].number());
        let mut values = self.values;
        for (name, port) in ["{PORT}", "{PORT2}", "{PORT3}", "{ADMIN}"].iter().zip(&*held) {
            values.push(((*name).to_owned(), port.to_string()));
        }
        values.push(("{DIR}".to_owned(), self.dir.path().display().to_string()));
        let file = self.dir.path().join("portcullis.yaml");
        std::fs::write(&file, fill(&self.template, &values)).expect("a configuration");
        let run_directory = ("RUNTIME_DIRECTORY".to_owned(), self.dir.path().display().to_string());
        let environment = [vec![run_directory], self.environment].concat();
        let mut command = command(&file, &[], &environment);
        if let Some(most) = self.files {
            limit_files(&mut command, most);
        }
        let (child, stdout, stderr) = launch(command, self.stderr);
        Gateway { child, dir: self.dir, values, environment, port, admin, held, stdout, stderr }
    }
}

impl Gateway {
    /// Prepares one with this configuration.
    pub fn builder(template: &str) -> Builder {
        let dir = tempfile::tempdir().expect("a folder");
        Builder {
            template: template.to_owned(),
            values: Vec::new(),
            environment: Vec::new(),
            files: None,
            stderr: None,
            dir,
        }
    }

    /// Starts one with this configuration and no origin.
    pub fn start(template: &str) -> Self {
        Gateway::builder(template).start()
    }

    /// Starts one with `{ORIGIN}` filled in.
    pub fn with_origin(template: &str, origin: &Origin) -> Self {
        Gateway::builder(template).origin(origin).start()
    }

    /// Starts another process with this configuration that takes this one's sockets over. Which of the two
    /// the admin port belongs to, the logs say.
    pub fn upgrade(&self, template: &str) -> Gateway {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("portcullis.yaml");
        std::fs::write(&file, fill(template, &self.values)).expect("a configuration");
        let (child, stdout, stderr) = launch(command(&file, &["--upgrade"], &self.environment), None);
        let (values, environment) = (self.values.clone(), self.environment.clone());
        let (port, admin, held) = (self.port, self.admin, Arc::clone(&self.held));
        Gateway { child, dir, values, environment, port, admin, held, stdout, stderr }
    }

    /// Where it listens for traffic.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The value of a placeholder, such as `PORT2`.
    pub fn value(&self, name: &str) -> &str {
        let name = format!("{{{name}}}");
        self.values
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.as_str())
            .expect("a placeholder")
    }

    /// Where operators ask.
    pub fn admin_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.admin))
    }

    /// A connection to the traffic port.
    pub fn connect(&self) -> Connection {
        Connection::open(self.address())
    }

    /// A TLS connection to the traffic port.
    pub fn connect_tls(&self, name: &'static str) -> Connection {
        Connection::open_tls(self.address(), &TlsClient::named(name)).expect("a handshake")
    }

    /// One `GET` on a connection of its own.
    pub fn get(&self, host: &str, path: &str) -> Response {
        self.connect().get(host, path, "")
    }

    /// One `GET` on the admin port.
    pub fn admin(&self, path: &str) -> Response {
        let address = self.admin_address();
        Connection::open(address).get(&address.to_string(), path, "Connection: close\r\n")
    }

    /// A scrape.
    pub fn metrics(&self) -> Metrics {
        Metrics::parse(self.admin("/metrics").text())
    }

    /// Waits until a sum of series reaches at least `wanted`.
    pub fn wait_metric(&self, name: &str, labels: &[(&str, &str)], wanted: f64) {
        let reached = || self.metrics().sum(name, labels) >= wanted;
        eventually::until(&format!("{name}{labels:?} of {wanted}"), reached);
    }

    /// Waits until a sum of series is this: an answer may be there before it is counted.
    pub fn wait_metric_is(&self, name: &str, labels: &[(&str, &str)], wanted: f64) {
        let is = || self.metrics().sum(name, labels);
        let reached = eventually::within(DEADLINE, || (is() == wanted).then_some(()));
        assert!(reached.is_some(), "{name}{labels:?} is {}, not {wanted}", is());
    }

    /// The generation that serves.
    pub fn generation(&self) -> u64 {
        self.metrics().get("portcullis_config_generation", &[]).expect("a generation") as u64
    }

    /// The configuration file.
    pub fn config_file(&self) -> PathBuf {
        self.dir.path().join("portcullis.yaml")
    }

    /// The folder of the configuration.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Replaces the configuration file; placeholders are filled in.
    pub fn write_config(&self, template: &str) {
        let next = self.dir.path().join("portcullis.yaml.next");
        std::fs::write(&next, fill(template, &self.values)).expect("a configuration");
        std::fs::rename(next, self.config_file()).expect("a configuration");
    }

    /// Sends SIGHUP.
    pub fn sighup(&self) {
        self.signal(libc::SIGHUP);
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the process is our child and not yet waited for.
        let sent = unsafe { libc::kill(self.child.id() as i32, signal) };
        assert_eq!(sent, 0, "signal {signal}");
    }

    /// Replaces the configuration, sends SIGHUP and waits until it serves.
    pub fn reload(&self, template: &str) {
        let generation = self.generation();
        self.write_config(template);
        self.sighup();
        self.wait_generation(generation + 1);
    }

    /// Waits until at least this generation serves.
    pub fn wait_generation(&self, generation: u64) {
        eventually::until(&format!("generation {generation}"), || self.generation() >= generation);
    }

    /// Waits until the metrics say that the last reload succeeded.
    pub fn wait_reload_successful(&self) {
        self.wait_metric("portcullis_config_last_reload_successful", &[], 1.0);
    }

    /// Replaces the configuration, sends SIGHUP and waits until that has failed, the log naming all
    /// of this.
    pub fn reload_refused(&self, template: &str, named: &[&str]) {
        let (generation, attempts) = (self.generation(), self.reloads());
        let read = self.log().len();
        self.write_config(template);
        self.sighup();
        eventually::until("a finished reload", || self.reloads() > attempts);
        let metrics = self.metrics();
        assert_eq!(metrics.get("portcullis_config_last_reload_successful", &[]), Some(0.0));
        assert_eq!(self.generation(), generation, "a refused file changed something");
        for text in named {
            eventually::until(&format!("{text:?} in the log"), || self.log()[read..].contains(text));
        }
    }

    fn reloads(&self) -> f64 {
        self.metrics().sum("portcullis_config_reloads_total", &[])
    }

    /// Everything on standard error so far.
    pub fn log(&self) -> String {
        self.stderr.text()
    }

    /// Waits until standard error holds this text.
    pub fn wait_log(&self, text: &str) {
        eventually::until(&format!("{text:?} in the log"), || self.log().contains(text));
    }

    /// The access records on standard output so far.
    pub fn access_records(&self) -> Vec<serde_json::Value> {
        let lines = self.stdout.0.lock().unwrap();
        lines.iter().map(|line| serde_json::from_str(line).expect("a JSON record")).collect()
    }

    /// Waits until an access record satisfies this.
    pub fn wait_record(&self, wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        eventually::eventually("an access record", || self.access_records().into_iter().find(&wanted))
    }

    /// Waits for the access record of a path.
    pub fn wait_record_of(&self, path: &str) -> serde_json::Value {
        self.wait_record(|record| record["path"] == path)
    }

    /// Everything on standard output so far.
    pub fn output(&self) -> String {
        self.stdout.text()
    }

    /// Sends SIGTERM.
    pub fn term(&self) {
        self.signal(libc::SIGTERM);
    }

    /// Waits for the end; gives the exit code (128 + signal when killed).
    pub fn wait_exit(&mut self, deadline: Duration) -> i32 {
        let status = eventually::within(deadline, || self.child.try_wait().expect("a child"));
        let status = status.unwrap_or_else(|| panic!("still running after {deadline:?}"));
        self.stdout.wait_end();
        self.stderr.wait_end();
        exit_code(status)
    }

    /// Whether it is still there.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Resident memory.
    pub fn rss_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a process");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a size")
    }

    /// Whether the process has a handler for this signal.
    pub fn catches(&self, signal: i32) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("a process");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask");
        u64::from_str_radix(mask.trim(), 16).expect("a mask") >> (signal - 1) & 1 == 1
    }

    /// Open file descriptors.
    pub fn open_fds(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("a process").count()
    }

    /// Lets it open no file more; gives the limit there was.
    pub fn forbid_open_files(&self) -> libc::rlimit {
        let before = self.set_open_files(libc::rlimit { rlim_cur: 0, rlim_max: 0 });
        self.set_open_files(libc::rlimit { rlim_cur: 0, ..before })
    }

    /// Changes how many files it may have open; gives the limit there was.
    pub fn set_open_files(&self, limit: libc::rlimit) -> libc::rlimit {
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let new = if limit.rlim_max == 0 { std::ptr::null() } else { &raw const limit };
        let pid = self.child.id() as i32;
        // SAFETY: it reads and writes structs that are there for the time of the call.
        assert_eq!(unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, new, &raw mut before) }, 0);
        before
    }

    /// Waits for 200 from `/readyz`; the error is the exit code when it left instead.
    pub fn wait_ready(&mut self) -> Result<(), Option<i32>> {
        let outcome = eventually::within(DEADLINE, || {
            if let Some(status) = self.child.try_wait().expect("a child") {
                self.stderr.wait_end();
                return Some(Err(Some(exit_code(status))));
            }
            // Nobody may listen yet, and it may leave at any moment.
            let stream = std::net::TcpStream::connect(self.admin_address()).ok()?;
            stream.set_read_timeout(Some(DEADLINE)).ok()?;
            let mut connection = Connection::from(Stream::Plain(stream));
            let answer =
                connection.try_request("GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            answer.is_ok_and(|answer| answer.status == 200).then_some(Ok(()))
        });
        outcome.unwrap_or(Err(None))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            self.stderr.wait_end();
            eprintln!("--- the gateway's log\n{}---", self.stderr.text());
        }
    }
}

impl Lines {
    fn of(output: impl Read + Send + 'static) -> Self {
        let lines = Lines::default();
        let kept = Arc::clone(&lines.0);
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                kept.lock().unwrap().push(String::from_utf8_lossy(&line).into_owned());
            }
        });
        lines
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().iter().map(|line| format!("{line}\n")).collect()
    }

    /// Waits until the reading thread has seen the end (it holds the other reference until then).
    fn wait_end(&self) {
        eventually::until("the end of an output", || Arc::strong_count(&self.0) == 1);
    }
}

fn command(file: &Path, arguments: &[&str], environment: &[(String, String)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portcullis"));
    command.args(["run", "-c"]).arg(file).args(arguments).envs(environment.iter().cloned());
    command
}

fn limit_files(command: &mut Command, most: u64) {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    let set = move || {
        // SAFETY: it reads one struct that is there for the time of the call.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec it makes one system call and allocates nothing.
    unsafe { command.pre_exec(set) };
}

fn launch(mut command: Command, stderr: Option<Stdio>) -> (Child, Lines, Lines) {
    let command =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr.unwrap_or_else(Stdio::piped));
    let mut child = command.spawn().expect("the gateway's process");
    let stdout = Lines::of(child.stdout.take().expect("a pipe"));
    let stderr = child.stderr.take().map(Lines::of).unwrap_or_default();
    (child, stdout, stderr)
}

/// Fills the placeholders of a configuration in and adds what it leaves out.
pub fn fill(template: &str, values: &[(String, String)]) -> String {
    let mut text = template.to_owned();
    let has = |key: &str| template.lines().any(|line| line.starts_with(key));
    for (key, line) in [
        ("listeners:", "listeners: [{ name: edge, address: \"127.0.0.1:{PORT}\" }]"),
        ("admin:", "admin: { address: \"127.0.0.1:{ADMIN}\" }"),
        ("workers:", "workers: 2"),
    ] {
        if !has(key) {
            text.push_str(&format!("\n{line}"));
        }
    }
    text.push('\n');
    for (name, value) in values {
        text = text.replace(name, value);
    }
    text
}

fn exit_code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).expect("a code or a signal")
}

#[test]
fn placeholders_are_filled_and_keys_added_only_when_left_out() {
    let values = [("{PORT}".to_owned(), "81".to_owned()), ("{ADMIN}".to_owned(), "82".to_owned())];
    let filled = fill("routes: []\nworkers: 1\nlisteners: [{ address: \"[::]:{PORT}\" }]", &values);
    assert!(filled.contains("[::]:81") && filled.contains("127.0.0.1:82"), "{filled}");
    assert_eq!(filled.matches("workers:").count(), 1);
    assert_eq!(filled.matches("listeners:").count(), 1);
}
