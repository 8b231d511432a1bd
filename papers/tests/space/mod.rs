//! How much a disk has room for.

use std::path::Path;

/// The greatest value of `--megabytes`.
const GREATEST: u64 = 1 << 20;

/// A number of megabytes for which the file system of `directory` has no room; `None` after a
/// message if it has room for the greatest.
pub fn more_than_free(directory: &Path) -> Option<String> {
    let space = nix::sys::statvfs::statvfs(directory).expect("free space");
    let free = (space.blocks_available() * space.fragment_size()) >> 20;
    let wanted = free + free / 2 + 1000;
    if wanted > GREATEST {
        println!("skipped: {free} MB are free here");
        return None;
    }
    Some(wanted.to_string())
}
