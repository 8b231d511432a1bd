//! The files that were mapped into the process.

use std::path::PathBuf;

/// A part of a file that was mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// End: the address after the last one.
    pub end: u64,
    /// Offset in the file of the byte at `start`.
    pub offset: u64,
    /// Path of the file.
    pub path: PathBuf,
}

/// The mapped files. A later mapping replaces earlier ones at its addresses.
pub fn mappings(lines: &str) -> Vec<Mapping> {
    let mut found: Vec<Mapping> = Vec::new();
    for mapping in lines.lines().filter_map(mapping) {
        found.retain(|other| mapping.end <= other.start || other.end <= mapping.start);
        found.push(mapping);
    }
    found
}

/// Parses a line of `/proc/PID/maps`; `None` unless it maps a file.
fn mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let offset = number(fields.nth(1)?)?;
    let path = fields.nth(2)?.trim_start();
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    Some(Mapping {
        start: number(start)?,
        end: number(end)?,
        offset,
        path: path.starts_with('/').then(|| path.into())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_mapping_replaces_earlier_one() {
        let lines = "1000-3000 r-xp 00000000 08:01 5   /usr/lib/a.so\n\
            4000-5000 r-xp 00001000 08:01 5   /usr/lib/a b.so (deleted)\n\
            5000-6000 rw-p 00000000 00:00 0   [heap]\n\
            2000-3000 r-xp 00000000 08:01 6   /usr/lib/c.so\n";
        let found = mappings(lines);
        let names: Vec<_> =
            found.iter().map(|one| (one.start, one.path.to_str().unwrap())).collect();
        assert_eq!(names, [(0x4000, "/usr/lib/a b.so"), (0x2000, "/usr/lib/c.so")]);
    }
}
