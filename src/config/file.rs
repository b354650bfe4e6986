//! Reads a file that an operator names, the configuration itself or one it names: a regular one, of bounded
//! size, without waiting for anybody. What is in it, others know.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Why a file could not be taken.
#[derive(Debug)]
pub enum Unreadable {
    /// What the operating system says.
    Io(std::io::Error),
    /// A folder.
    Folder,
    /// None that ends, such as a pipe or a device.
    NotRegular,
    /// It has more than so many MiB.
    TooLarge(u64),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreadable::Io(error) => error.fmt(f),
            Unreadable::Folder => f.write_str("it is a directory"),
            Unreadable::NotRegular => f.write_str("it is not a regular file"),
            Unreadable::TooLarge(mebibytes) => write!(f, "it is larger than {mebibytes} MiB"),
        }
    }
}

/// What the file holds.
///
/// # Errors
/// A reason, with the file's name.
pub fn read(file: &Path, mebibytes: u64) -> Result<Vec<u8>, String> {
    contents(file, mebibytes).map_err(|why| format!("cannot read {}: {why}", file.display()))
}

/// What the file holds.
///
/// # Errors
/// It cannot be read, has more than `mebibytes` MiB, or is no regular file.
pub fn contents(file: &Path, mebibytes: u64) -> Result<Vec<u8>, Unreadable> {
    // A pipe nobody writes to would hold the opening up for ever. What was opened is looked at, not what the
    // name stood for before.
    let opened =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(file).map_err(Unreadable::Io)?;
    let metadata = opened.metadata().map_err(Unreadable::Io)?;
    if metadata.is_dir() {
        return Err(Unreadable::Folder);
    }
    if !metadata.is_file() {
        return Err(Unreadable::NotRegular);
    }
    let most = mebibytes << 20;
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(most)).unwrap_or_default());
    // It may grow meanwhile.
    opened.take(most + 1).read_to_end(&mut bytes).map_err(Unreadable::Io)?;
    if bytes.len() as u64 > most {
        return Err(Unreadable::TooLarge(mebibytes));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_ends_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let (pipe, large) = (folder.path().join("pipe"), folder.path().join("large"));
        std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        std::fs::File::create(&large).and_then(|file| file.set_len((1 << 20) + 1)).expect("a file");
        let why = |file: &Path| contents(file, 1).expect_err("refused").to_string();
        assert_eq!(why(&pipe), "it is not a regular file");
        assert_eq!(why(Path::new("/dev/zero")), "it is not a regular file");
        assert_eq!(why(folder.path()), "it is a directory");
        assert_eq!(why(&large), "it is larger than 1 MiB");
        std::fs::write(&large, "a").expect("written");
        assert_eq!(contents(&large, 1).expect("read"), b"a");
    }
}
