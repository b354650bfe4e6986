//! `deploy/systemd/portcullis-reload`: HUP, or an upgrade when the program on disk is another one.

use crate::support::Gateway;
use crate::support::eventually::{DEADLINE, eventually, within};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const PROGRAM: &str = env!("CARGO_BIN_EXE_portcullis");

fn body(text: &str) -> String {
    format!("routes: [{{ respond: {{ body: {text} }} }}]\n")
}

/// The service manager's part: a socket that is notified, and a `systemctl` that knows the main process.
struct Manager {
    dir: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        socket.set_nonblocking(true).unwrap();
        let systemctl = dir.path().join("systemctl");
        let script = format!("#!/bin/sh\ncat {}\n", dir.path().join("main").display());
        fs::write(&systemctl, script).unwrap();
        fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.path().join("main"), "").unwrap();
        Manager { dir, socket }
    }

    fn start(&self, template: &str) -> Gateway {
        let path = self.dir.path().join("notify");
        Gateway::builder(template).environment("NOTIFY_SOCKET", path.display()).start()
    }

    /// What `ExecReload` runs.
    fn reload(&self, gateway: &Gateway, program: &Path) -> Child {
        self.reload_within(gateway, program, "45")
    }

    /// The same with so many seconds for an upgrade.
    fn reload_within(&self, gateway: &Gateway, program: &Path, seconds: &str) -> Child {
        let path = format!("{}:{}", self.dir.path().display(), std::env::var("PATH").unwrap());
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/systemd/portcullis-reload"))
            .env("MAINPID", gateway.pid().to_string())
            .env("NOTIFY_SOCKET", self.dir.path().join("notify"))
            .env("RUNTIME_DIRECTORY", gateway.dir())
            .env("PORTCULLIS", program)
            .env("PORTCULLIS_CONFIG", gateway.config_file())
            .env("PORTCULLIS_UPGRADE_SECONDS", seconds)
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the script")
    }

    /// The main process somebody else than `old` claims to be.
    fn new_main(&self, old: u32) -> i32 {
        let pid = eventually("another main process", || {
            let mut buffer = [0; 4096];
            let count = self.socket.recv(&mut buffer).ok()?;
            let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
            let pid = text.lines().find_map(|line| line.strip_prefix("MAINPID="))?;
            assert!(text.contains("READY=1"), "{text}");
            (pid != old.to_string()).then(|| pid.to_owned())
        });
        fs::write(self.dir.path().join("main"), format!("{pid}\n")).unwrap();
        pid.parse().unwrap()
    }
}

fn exit_code(child: &mut Child) -> Option<i32> {
    within(DEADLINE, || child.try_wait().unwrap()).expect("an end of the script").code()
}

#[test]
fn the_same_program_gets_a_hup() {
    let manager = Manager::new();
    let gateway = manager.start(&body("before"));
    gateway.write_config(&body("after"));
    assert_eq!(exit_code(&mut manager.reload(&gateway, Path::new(PROGRAM))), Some(0));
    gateway.wait_generation(2);
    assert_eq!(gateway.get("a", "/").text(), "after");
}

#[test]
fn another_program_takes_over() {
    let manager = Manager::new();
    let mut old = manager.start(&body("before"));
    let program = old.dir().join("portcullis");
    fs::copy(PROGRAM, &program).unwrap();
    old.write_config(&body("after"));
    let mut script = manager.reload(&old, &program);
    let new = manager.new_main(old.pid());
    assert_eq!(exit_code(&mut script), Some(0));
    assert_eq!(old.wait_exit(DEADLINE), 0);
    assert_eq!(old.get("a", "/").text(), "after");
    // SAFETY: a plain system call; the process is the one the script has started for this test.
    assert_eq!(unsafe { libc::kill(new, libc::SIGTERM) }, 0);
    eventually("the end of the new process", || {
        std::net::TcpStream::connect(old.admin_address()).is_err().then_some(())
    });
}

#[test]
fn a_program_that_is_refused_leaves_everything_to_the_old_one() {
    let manager = Manager::new();
    let mut old = manager.start(&body("before"));
    let program = old.dir().join("portcullis");
    fs::copy(PROGRAM, &program).unwrap();
    old.write_config("routes: [{ upstrem: x }]\n");
    assert_eq!(exit_code(&mut manager.reload(&old, &program)), Some(1));
    assert!(old.is_running());
    assert_eq!(old.get("a", "/").text(), "before");
}

#[test]
fn a_file_that_is_refused_is_an_error_and_reaches_nobody() {
    let manager = Manager::new();
    let gateway = manager.start(&body("before"));
    gateway.write_config("routes: [{ upstrem: x }]\n");
    assert_eq!(exit_code(&mut manager.reload(&gateway, Path::new(PROGRAM))), Some(1));
    assert_eq!(gateway.metrics().sum("portcullis_config_reloads_total", &[]), 0.0);
    assert_eq!(gateway.get("a", "/").text(), "before");
}

#[test]
fn an_upgrade_that_runs_out_of_time_leaves_one_process() {
    for ended_by_the_manager in [false, true] {
        let manager = Manager::new();
        let mut old = manager.start(&body("before"));
        let program = old.dir().join("portcullis");
        fs::copy(PROGRAM, &program).unwrap();
        let patience = if ended_by_the_manager { "3600" } else { "1" };
        // The manager never hears that the new process is the main one.
        let mut script = manager.reload_within(&old, &program, patience);
        if ended_by_the_manager {
            old.wait_log("serves as well");
            // SAFETY: a plain system call; the process is our child and not yet waited for.
            assert_eq!(unsafe { libc::kill(script.id() as i32, libc::SIGTERM) }, 0);
        }
        assert_eq!(exit_code(&mut script), Some(1));
        let took_over = old.log().contains("is taking over");
        assert!(took_over || !ended_by_the_manager, "{}", old.log());
        eventually("the end of the new process", || (processes_of(&program) == 0).then_some(()));
        assert!(old.is_running());
        assert_eq!(old.get("a", "/").text(), "before");
    }
}

/// How many processes run this program.
fn processes_of(program: &Path) -> usize {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let runs = |process: &fs::DirEntry| {
        fs::read_link(process.path().join("exe")).is_ok_and(|running| running == program)
    };
    processes.filter(runs).count()
}
