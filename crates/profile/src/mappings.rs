//! Which file was mapped at an address at a time.
//!
//! Several objects may have been loaded at the same addresses, one after the other. An object that
//! is gone therefore moves, in a profile that was read, to addresses that no process can have. A
//! frame has one meaning then, and tools that know nothing of times can name it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
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
    /// Number of the file's device, as in `stat`.
    pub device: u64,
    /// Number of the file on its device; 0 if unknown.
    pub inode: u64,
    /// Whether the file was deleted while it was mapped.
    pub is_deleted: bool,
}

/// Each object that is gone has addresses of its own, from a multiple of this one on. Processes use
/// lower addresses.
const ROOM: u64 = 1 << 47;

/// A mapping, and when it existed. Times are lengths of the file's list.
struct Listed {
    mapping: Mapping,
    /// When its line was written.
    from: u32,
    /// When another line ended it.
    until: Option<u32>,
    /// Number of the object that it belongs to, from 1.
    object: u64,
}

impl Mapping {
    fn is_of_same_file(&self, other: &Mapping) -> bool {
        let file = |of: &Mapping| (of.device, of.inode);
        self.path == other.path && file(self) == file(other)
    }
}

impl Listed {
    fn was_mapped(&self, time: u32) -> bool {
        self.from < time && self.until.is_none_or(|until| time <= until)
    }

    fn contains(&self, address: u64) -> bool {
        (self.mapping.start..self.mapping.end).contains(&address)
    }

    /// Where the object's addresses are in the profile that was read.
    fn moved_by(&self) -> u64 {
        if self.until.is_some() { self.object * ROOM } else { 0 }
    }

    /// Whether `other` is at the same place of the same object.
    fn is_part_of_same(&self, other: &Mapping) -> bool {
        let place = |mapping: &Mapping| mapping.start.wrapping_sub(mapping.offset);
        self.mapping.is_of_same_file(other) && place(&self.mapping) == place(other)
    }
}

/// All mappings of a file's list.
pub(crate) struct History {
    listed: Vec<Listed>,
    /// Whether an object is gone.
    has_gone: bool,
}

impl History {
    /// Parses the list. Times count bytes, and a path may have bytes that are no UTF-8.
    pub(crate) fn parse(list: &[u8]) -> Self {
        let mut history = History { listed: Vec::new(), has_gone: false };
        let mut objects: HashMap<PathBuf, u64> = HashMap::new();
        let mut time = 0;
        for line in list.split_inclusive(|&byte| byte == b'\n') {
            if let Some((start, end, file)) = parse_line(line.strip_suffix(b"\n").unwrap_or(line)) {
                match file {
                    Some(mapping) => history.add(mapping, time, &mut objects),
                    None => history.end(time, |one| (one.start, one.end) == (start, end)),
                }
            }
            time += line.len() as u32;
        }
        history.has_gone = history.listed.iter().any(|one| one.until.is_some());
        history
    }

    fn add(&mut self, mapping: Mapping, time: u32, objects: &mut HashMap<PathBuf, u64>) {
        let overlaps = |other: &Mapping| mapping.start < other.end && other.start < mapping.end;
        let same = self.listed.iter().position(|one| {
            one.until.is_none() && overlaps(&one.mapping) && one.is_part_of_same(&mapping)
        });
        let object = same.map(|same| self.listed.remove(same).object);
        self.end(time, overlaps);
        let next = self.listed.iter().map(|one| one.object).max().unwrap_or(0) + 1;
        let of_start = objects.get(&mapping.path).filter(|_| mapping.offset > 0).copied();
        let object = object.or(of_start).unwrap_or(next);
        objects.insert(mapping.path.clone(), object);
        self.listed.push(Listed { mapping, from: time, until: None, object });
    }

    /// Ends the objects that have such a mapping.
    fn end(&mut self, time: u32, is_ended: impl Fn(&Mapping) -> bool) {
        let mapped = self.listed.iter().filter(|one| one.until.is_none());
        let ended = mapped.filter(|one| is_ended(&one.mapping)).map(|one| one.object);
        let ended: Vec<u64> = ended.collect();
        let mapped = self.listed.iter_mut().filter(|one| one.until.is_none());
        mapped.filter(|one| ended.contains(&one.object)).for_each(|one| one.until = Some(time));
    }

    /// The mappings, at their addresses in the profile that was read.
    pub(crate) fn mappings(&self) -> Vec<Mapping> {
        let moved = |one: &Listed| {
            let Mapping { start, end, .. } = one.mapping;
            let (start, end) = (start + one.moved_by(), end + one.moved_by());
            Mapping { start, end, ..one.mapping.clone() }
        };
        self.listed.iter().map(moved).collect()
    }

    /// Moves the address of code that ran at a time. A mapping may be listed late, but not twice.
    pub(crate) fn code(&self, address: u64, time: u32) -> u64 {
        if !self.has_gone {
            return address;
        }
        let at = || self.listed.iter().filter(|one| one.contains(address));
        let found = at().find(|one| one.was_mapped(time)).or_else(|| {
            let later = at().filter(|one| one.from >= time);
            later.min_by_key(|one| one.from)
        });
        address + found.map_or(0, Listed::moved_by)
    }

    /// Moves the address of an object's variable. The list has no mappings of variables, which
    /// follow the object's start.
    pub(crate) fn variable(&self, address: u64, time: u32) -> u64 {
        if !self.has_gone {
            return address;
        }
        let before = self.listed.iter().filter(|one| {
            one.mapping.offset == 0 && one.mapping.start <= address && one.was_mapped(time)
        });
        let found = before.max_by_key(|one| one.mapping.start);
        address + found.map_or(0, Listed::moved_by)
    }
}

/// Parses a line of `/proc/PID/maps`: the addresses, and the mapping if it is of a file.
fn parse_line(line: &[u8]) -> Option<(u64, u64, Option<Mapping>)> {
    let mut fields = line.splitn(6, |&byte| byte == b' ');
    let (start, end) = text(fields.next()?)?.split_once('-')?;
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let below = |address: &u64| *address <= ROOM;
    let (start, end) = (number(start).filter(below)?, number(end).filter(below)?);
    let mut file = || {
        let offset = number(text(fields.nth(1)?)?)?;
        let (major, minor) = text(fields.next()?)?.split_once(':')?;
        let device = device(number(major)?, number(minor)?);
        let inode = text(fields.next()?)?.parse().unwrap_or(0);
        let path = fields.next()?.trim_ascii_start();
        let kept = path.strip_suffix(b" (deleted)");
        let (path, is_deleted) = (kept.unwrap_or(path), kept.is_some());
        let path = path.starts_with(b"/").then(|| OsStr::from_bytes(path).into())?;
        Some(Mapping { start, end, offset, path, device, inode, is_deleted })
    };
    Some((start, end, file()))
}

fn text(field: &[u8]) -> Option<&str> {
    core::str::from_utf8(field).ok()
}

/// A device's number (`makedev` of glibc).
fn device(major: u64, minor: u64) -> u64 {
    let (major_high, minor_high) = (major & 0xffff_f000, minor & 0xffff_ff00);
    major_high << 32 | (major & 0xfff) << 8 | minor_high << 12 | minor & 0xff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_has_its_files_identity() {
        let line = b"1000-2000 r-xp 0 fe:101 5000000000   /a (deleted)";
        let (.., file) = parse_line(line).unwrap();
        let file = file.unwrap();
        assert_eq!((file.inode, file.is_deleted), (5_000_000_000, true));
        assert_eq!((file.device, file.path), (0x10_fe01, "/a".into()));
    }

    #[test]
    fn path_keeps_bytes_that_are_no_utf_8() {
        let history = History::parse(b"1000-2000 r-xp 0 08:01 5   /caf\xe9/a.so (deleted)\n");
        let [one] = &history.mappings()[..] else { panic!("one mapping") };
        assert_eq!(one.path.as_os_str().as_bytes(), b"/caf\xe9/a.so");
        assert!(one.is_deleted);
    }

    #[test]
    fn other_file_at_same_path_is_another_object() {
        let history = History::parse(b"1000-2000 r-xp 0 08:01 5 /a\n1000-2000 r-xp 0 08:01 6 /a\n");
        let inodes: Vec<u64> = history.mappings().iter().map(|one| one.inode).collect();
        assert_eq!(inodes, [5, 6]);
        assert_ne!(history.code(0x1010, 1), 0x1010);
    }

    fn named(history: &History, address: u64, time: u32) -> Option<(String, u64)> {
        let moved = history.code(address, time);
        let mappings = history.mappings();
        let found = mappings.iter().find(|one| (one.start..one.end).contains(&moved))?;
        Some((found.path.display().to_string(), moved - found.start))
    }

    #[test]
    fn later_mapping_replaces_earlier_one() {
        let history = History::parse(
            b"1000-3000 r-xp 00000000 08:01 5   /usr/lib/a.so\n\
             4000-5000 r-xp 00001000 08:01 5   /usr/lib/a b.so (deleted)\n\
             5000-6000 rw-p 00000000 00:00 0   [heap]\n\
             2000-3000 r-xp 00000000 08:01 6   /usr/lib/c.so\n",
        );
        let end = u32::MAX;
        assert_eq!(named(&history, 0x4010, end), Some(("/usr/lib/a b.so".into(), 0x10)));
        assert_eq!(named(&history, 0x2010, end), Some(("/usr/lib/c.so".into(), 0x10)));
        assert_eq!(named(&history, 0x1010, end), None);
    }

    #[test]
    fn code_keeps_file_that_is_gone() {
        let object = |name: &str| {
            format!("1000-2000 r--p 0 08:01 5 /{name}\n2000-3000 r-xp 1000 08:01 5 /{name}\n")
        };
        let gone = "1000-2000 ---p 0 00:00 0\n2000-3000 ---p 0 00:00 0\n";
        let (a, b) = (object("a.so"), object("b.so"));
        let first = a.len() as u32;
        let text = format!("{a}{gone}{b}{a}");
        let history = History::parse(text.as_bytes());
        let second = first + (gone.len() + b.len()) as u32;
        let third = text.len() as u32;
        for (time, name) in [(first, "/a.so"), (second, "/b.so"), (third, "/a.so")] {
            assert_eq!(named(&history, 0x2010, time), Some((name.into(), 0x10)), "{time}");
            let moved = history.variable(0x4000, time) - 0x4000;
            assert_eq!(moved, history.code(0x2010, time) - 0x2010, "{time}");
        }
        // Recorded before its mapping was listed.
        assert_eq!(named(&history, 0x2010, 0), Some(("/a.so".into(), 0x10)));
        assert_ne!(history.code(0x2010, first), history.code(0x2010, third));
        // The parts of an object move together.
        let starts: Vec<u64> = history.mappings().iter().map(|one| one.start).collect();
        assert!(starts.chunks(2).all(|parts| parts[1] - parts[0] == 0x1000), "{starts:x?}");
    }

    #[test]
    fn growing_mapping_stays_same_object() {
        let history = History::parse(b"1000-2000 r-xp 0 08:01 5 /a\n1000-4000 r-xp 0 08:01 5 /a\n");
        assert_eq!(history.mappings().len(), 1);
        assert_eq!(history.code(0x1010, 1), 0x1010);
    }
}
