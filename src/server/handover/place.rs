//! Where a process can be asked for its sockets: a Unix socket in a folder nobody else can write to.
//!
//! Both processes derive it from the same facts: the user, and the admin address, which no two gateways
//! of a machine share.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// A socket file of this process.
pub struct Place {
    path: PathBuf,
    inode: (u64, u64),
}

impl Place {
    /// Listens at `path`; whatever was there is replaced in one step.
    ///
    /// # Errors
    /// When the folder cannot be written to, or its path is too long for a socket.
    pub fn claim(path: PathBuf) -> io::Result<(Self, UnixListener)> {
        let new = path.with_extension(format!("{}.new", std::process::id()));
        let _ = fs::remove_file(&new);
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(0o600))?;
        fs::rename(&new, &path)?;
        let inode = inode(&path)?;
        Ok((Place { path, inode }, listener))
    }

    /// Removes the file, unless another process has put its own there.
    pub fn remove(self) {
        if inode(&self.path).is_ok_and(|inode| inode == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The socket file of the gateway with this admin address.
///
/// # Errors
/// When there is no private folder for it.
pub fn path(admin: SocketAddr) -> io::Result<PathBuf> {
    let name = admin.to_string().replace(['[', ']'], "").replace([':', '%'], "-");
    Ok(folder()?.join(format!("upgrade-{name}.sock")))
}

/// The effective user of this process.
pub fn user() -> u32 {
    // SAFETY: it takes nothing, touches no memory and cannot fail.
    unsafe { libc::geteuid() }
}

/// The run directory a service manager gives, else the usual one of the user.
fn folder() -> io::Result<PathBuf> {
    if let Some(given) = std::env::var_os("RUNTIME_DIRECTORY") {
        // systemd separates several by colons.
        let first = given.to_string_lossy().split(':').next().map(PathBuf::from);
        return private(first.unwrap_or_default());
    }
    let user = user();
    let session = PathBuf::from(format!("/run/user/{user}"));
    if user == 0 {
        private("/run/portcullis".into())
    } else if session.is_dir() {
        private(session.join("portcullis"))
    } else {
        private(std::env::temp_dir().join(format!("portcullis-{user}")))
    }
}

/// The folder, made if need be, and nobody else's to write to: who can write there can put a socket of
/// his own in the place of ours.
fn private(folder: PathBuf) -> io::Result<PathBuf> {
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(named(&folder, &error.to_string())),
        _ => {
            let found = fs::symlink_metadata(&folder).map_err(|error| named(&folder, &error.to_string()))?;
            let private = found.is_dir() && found.uid() == user() && found.mode() & 0o022 == 0;
            if private { Ok(folder) } else { Err(named(&folder, "others can write to it")) }
        }
    }
}

fn named(folder: &Path, reason: &str) -> io::Error {
    io::Error::other(format!("{}: {reason}", folder.display()))
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_others_can_write_to_is_refused() {
        let base = tempfile::tempdir().expect("a folder");
        let made = private(base.path().join("made")).expect("private");
        assert_eq!(fs::metadata(&made).expect("made").mode() & 0o777, 0o700);
        fs::set_permissions(&made, Permissions::from_mode(0o777)).expect("ours");
        assert!(private(made.clone()).is_err());
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).expect("a link");
        assert!(private(link).is_err());
    }

    #[test]
    fn a_place_that_was_taken_over_is_not_removed() {
        let base = tempfile::tempdir().expect("a folder");
        let path = base.path().join("a.sock");
        let (old, _listener) = Place::claim(path.clone()).expect("free");
        let (new, _listener) = Place::claim(path.clone()).expect("replaced");
        old.remove();
        assert!(path.exists());
        new.remove();
        assert!(!path.exists());
    }
}
