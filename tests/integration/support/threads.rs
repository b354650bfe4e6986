//! One thread of a process, held still from outside (ptrace) while the others go on: what a thread looks like
//! that spins or waits for ever.

use super::eventually::{eventually, until};
use std::path::Path;
use std::ptr::null_mut;

/// The thread. It goes on when this is dropped; to be used by one thread of the test alone.
pub struct HeldThread {
    id: i32,
    ended: bool,
}

impl HeldThread {
    /// Holds the thread of this name of a child of the test.
    pub fn of(process: u32, name: &str) -> HeldThread {
        let id = eventually("a thread", || find(process, name));
        ask(libc::PTRACE_SEIZE, id);
        ask(libc::PTRACE_INTERRUPT, id);
        let mut held = HeldThread { id, ended: false };
        until("a thread that stands still", || held.wait());
        held
    }

    /// Waits until its process has ended it. Before that the process cannot be waited for.
    pub fn wait_end(mut self) {
        until("the end of a thread", || self.wait() && self.ended);
    }

    /// Whether there is news of it.
    fn wait(&mut self) -> bool {
        let mut status = 0;
        // SAFETY: it writes one number that is there for the time of the call.
        let news = unsafe { libc::waitpid(self.id, &raw mut status, libc::__WALL | libc::WNOHANG) };
        assert!(news >= 0, "{}", std::io::Error::last_os_error());
        self.ended |= news > 0 && !libc::WIFSTOPPED(status);
        news > 0
    }
}

impl Drop for HeldThread {
    fn drop(&mut self) {
        if !self.ended {
            ask(libc::PTRACE_DETACH, self.id);
        }
    }
}

fn ask(request: libc::c_uint, thread: i32) {
    // SAFETY: none of the three requests reads or writes memory of ours.
    let done = unsafe { libc::ptrace(request, thread, null_mut::<u8>(), null_mut::<u8>()) };
    assert!(done == 0 || std::thread::panicking(), "{}", std::io::Error::last_os_error());
}

fn find(process: u32, name: &str) -> Option<i32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).ok()?.filter_map(Result::ok);
    let named =
        |path: &Path| std::fs::read_to_string(path.join("comm")).is_ok_and(|it| it.trim_end() == name);
    let task = tasks.map(|task| task.path()).find(|path| named(path))?;
    task.file_name()?.to_str()?.parse().ok()
}
