//! Reads a file the configuration names: a regular one, of bounded size. What is in it, others know.

use std::path::Path;

/// What the file holds.
///
/// # Errors
/// A reason, with the file's name: it cannot be read, has more than `mebibytes` MiB, or is none that ends,
/// such as a pipe or a device.
pub fn read(file: &Path, mebibytes: u64) -> Result<Vec<u8>, String> {
    let shown = file.display();
    let unreadable = |error: std::io::Error| format!("cannot read {shown}: {error}");
    let metadata = std::fs::metadata(file).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(format!("{shown} is not a regular file"));
    }
    if metadata.len() > mebibytes << 20 {
        return Err(format!("{shown} is larger than {mebibytes} MiB"));
    }
    std::fs::read(file).map_err(unreadable)
}
