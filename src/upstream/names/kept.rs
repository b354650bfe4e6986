//! What was made of a file, for as long as the file stays as it is.
//!
//! A lookup asks for the file's stamp, which costs one system call; the file is read again only when that has
//! changed. Knows nothing of what is in it.

use parking_lot::Mutex;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Which file, how long, last written when. The default: there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    length: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl Stamp {
    /// That of the file which is there now.
    pub(super) fn of(file: &Path) -> Stamp {
        std::fs::metadata(file).map_or_else(
            |_| Stamp::default(),
            |found| Stamp {
                inode: found.ino(),
                length: found.len(),
                seconds: found.mtime(),
                nanoseconds: found.mtime_nsec(),
            },
        )
    }
}

/// What was made when the stamp was this.
#[derive(Debug)]
pub(super) struct Kept<T>(Mutex<Option<(Stamp, Arc<T>)>>);

impl<T> Kept<T> {
    /// Nothing yet.
    pub(super) fn new() -> Kept<T> {
        Kept(Mutex::new(None))
    }

    /// What was made for `stamp`, else what `make` makes now.
    ///
    /// # Errors
    /// Those of `make`; it is asked again then.
    pub(super) fn get<E>(&self, stamp: Stamp, make: impl FnOnce() -> Result<T, E>) -> Result<Arc<T>, E> {
        let mut kept = self.0.lock();
        match &*kept {
            Some((made_for, made)) if *made_for == stamp => Ok(Arc::clone(made)),
            _ => {
                let made = Arc::new(make()?);
                *kept = Some((stamp, Arc::clone(&made)));
                Ok(made)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_when_it_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let kept = Kept::new();
        let read = || *kept.get(Stamp::of(&file), || std::fs::read(&file).map(|text| text.len())).unwrap();
        assert!(kept.get(Stamp::of(&file), || std::fs::read(&file).map(|text| text.len())).is_err());
        std::fs::write(&file, "one").unwrap();
        assert_eq!(read(), 3);
        let unchanged = kept.get(Stamp::of(&file), || Err("it is read again"));
        assert_eq!(unchanged.map(|length| *length), Ok(3));
        std::fs::write(&file, "another").unwrap();
        assert_eq!(read(), 7);
        // Another file in its place, as editors write them.
        std::fs::write(folder.path().join("new"), "renamed").unwrap();
        std::fs::rename(folder.path().join("new"), &file).unwrap();
        assert!(kept.get(Stamp::of(&file), || Err("it is read again")).is_err());
    }
}
