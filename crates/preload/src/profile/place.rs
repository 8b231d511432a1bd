//! The place of a lock in the program, as a name that is the same in each run: a symbol and its
//! file, or an offset in the file.
//!
//! Nothing here allocates. The files' symbols are read with `pread`, because a mapped file that
//! somebody truncates would kill the process.

use core::ops::Range;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use unconvoy_profile::Profile;
use unconvoy_profile::layout::{DEPTH, Lock, TIME_SHIFT};

use super::name::Name;
use super::symbols::{self, Wanted};

/// Longest path, as in the kernel.
const PATH_MAX: usize = 4096;

/// The place of a lock.
pub(super) struct Place<const N: usize> {
    pub(super) name: Name<N>,
    /// The addresses of the static variable that the lock is in; empty for other locks.
    pub(super) variable: Range<u64>,
}

/// The place of a static lock, or else of the code that first waited for the lock.
pub(super) fn of<const N: usize>(profile: &Profile, lock: &Lock) -> Place<N> {
    let address = lock.address.load(Relaxed);
    if let Some((name, variable)) = find(profile, address, Wanted::Variable) {
        return Place { name, variable };
    }
    let stack = lock.first_stack.load(Relaxed);
    let stack = (stack as usize).checked_sub(1).and_then(|index| profile.stacks.get(index));
    let depth = stack.map_or(0, |stack| stack.depth.load(Acquire) & ((1 << TIME_SHIFT) - 1));
    let first = stack.map_or(0, |stack| stack.first.load(Relaxed)) as usize;
    let frames = profile.frames.get(first..first + (depth as usize).min(DEPTH));
    // A return address may belong to the next function, so look up the last byte of the call.
    let calls = frames.unwrap_or_default().iter().map(|frame| frame.load(Relaxed) - 1);
    let mut places = calls.filter_map(|pc| find(profile, pc, Wanted::Function));
    let name = places.next().map_or_else(
        || {
            let mut name = Name::EMPTY;
            name.add(b"unknown");
            name
        },
        |(name, _)| name,
    );
    Place { name, variable: 0..0 }
}

/// A line of `/proc/self/maps`.
struct Mapping<'a> {
    addresses: Range<u64>,
    is_code: bool,
    /// The path of the file whose start is mapped.
    file: Option<&'a [AtomicU8]>,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a [AtomicU8]) -> Option<Self> {
        let slash = line.iter().position(|byte| byte.load(Relaxed) == b'/');
        let (fields, path) = line.split_at(slash.unwrap_or(line.len()));
        let mut text = [0; 128];
        let text = core::str::from_utf8(copy(fields, &mut text)?).ok()?;
        let mut fields = text.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (access, offset) = (fields.next()?, fields.next()?);
        let number = |text| u64::from_str_radix(text, 16).ok();
        let is_start = !path.is_empty() && number(offset)? == 0;
        Some(Mapping {
            addresses: number(start)?..number(end)?,
            is_code: access.contains('x'),
            file: is_start.then_some(path),
        })
    }

    fn overlaps(&self, other: &Mapping<'_>) -> bool {
        self.addresses.start < other.addresses.end && other.addresses.start < self.addresses.end
    }
}

/// Copies bytes of the list; `None` if there is no room for them.
fn copy<'a>(from: &[AtomicU8], to: &'a mut [u8]) -> Option<&'a [u8]> {
    let to = to.get_mut(..from.len())?;
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.load(Relaxed));
    Some(&*to)
}

/// The file that may contain `address`: the last one that starts below it. Data has no lines in the
/// list, but lies behind the file's code.
fn file_around(profile: &Profile, address: u64) -> Option<Mapping<'_>> {
    let used = (profile.header.modules_used.load(Acquire) as usize).min(profile.modules.len());
    let lines = profile.modules[..used].split(|byte| byte.load(Relaxed) == b'\n');
    let mut nearest: Option<Mapping<'_>> = None;
    for mapping in lines.filter_map(Mapping::parse) {
        // A line ends the mappings that were at its addresses.
        nearest = nearest.filter(|nearest| !nearest.overlaps(&mapping));
        let start = mapping.addresses.start;
        let is_nearer = nearest.as_ref().is_none_or(|nearest| nearest.addresses.start < start);
        if start > address || !is_nearer {
            continue;
        }
        if mapping.file.is_some() {
            nearest = Some(mapping);
        } else if let Some(nearest) = &mut nearest {
            nearest.is_code |= mapping.is_code;
        }
    }
    nearest.filter(|nearest| nearest.is_code || nearest.addresses.contains(&address))
}

/// The name of an address in a file, and the addresses that have this name; `None` outside of all
/// files. At most one file is opened.
fn find<const N: usize>(
    profile: &Profile,
    address: u64,
    wanted: Wanted,
) -> Option<(Name<N>, Range<u64>)> {
    let mapping = file_around(profile, address)?;
    let mut room = [0; PATH_MAX];
    let path = copy(mapping.file?, &mut room)?;
    let base = mapping.addresses.start;
    let mut name = Name::EMPTY;
    let offsets = symbols::find(path, address - base, wanted, &mut name)?;
    name.add(b" in ");
    let slash = path.iter().rposition(|&byte| byte == b'/')?;
    name.add(&path[slash + 1..]);
    Some((name, base + offsets.start..base.saturating_add(offsets.end)))
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use unconvoy_profile::layout::zeroed;

    use super::*;

    /// A profile with this list.
    fn listing(list: &[u8]) -> Box<Profile> {
        let profile = zeroed();
        profile.modules.iter().zip(list).for_each(|(to, &byte)| to.store(byte, Relaxed));
        profile.header.modules_used.store(list.len() as u32, Relaxed);
        profile
    }

    #[test]
    fn static_variable_is_named_and_heap_is_not() {
        static VARIABLE: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
        let profile = listing(&std::fs::read("/proc/self/maps").expect("this process's list"));
        let found = |address: u64| find::<256>(&profile, address, Wanted::Variable);
        let address = VARIABLE.as_ptr().addr() as u64;
        let (name, addresses) = found(address + 8).expect("in the program's file");
        let name = String::from_utf8_lossy(name.bytes()).into_owned();
        assert!(name.contains("VARIABLE"), "{name}");
        assert_eq!(addresses, address..address + 32);
        let heap = Box::new([VARIABLE[0].load(Relaxed); 4]);
        assert!(found(heap.as_ptr().addr() as u64).is_none());
    }

    #[test]
    fn only_the_file_that_starts_nearest_may_contain_an_address() {
        let list = "1000-2000 r--p 00000000 08:01 5                  /a.so\n\
                    2000-3000 r-xp 00001000 08:01 5                  /a.so\n\
                    5000-6000 rw-s 00000000 08:01 6                  /data\n\
                    8000-9000 r-xp 00000000 08:01 7                  /gone.so\n\
                    0000000000008000-0000000000009000 ---p 00000000 00:00 0\n\
                    b000-c000 r-xp 00000000 08:01 8                  /old.so\n\
                    a000-b800 r-xp 00000000 08:01 9                  /new.so\n";
        let profile = listing(list.as_bytes());
        let file = |address| {
            let path = file_around(&profile, address)?.file?;
            let mut room = [0; 16];
            Some(String::from_utf8_lossy(copy(path, &mut room)?).into_owned())
        };
        let files = [0x500, 0x1500, 0x2500, 0x3500, 0x5500, 0x6500, 0x8500, 0xb500, 0xc500];
        let [a, data, new] = ["/a.so", "/data", "/new.so"].map(|path| Some(path.to_string()));
        let expected = [None, a.clone(), a.clone(), a, data, None, None, new.clone(), new];
        assert_eq!(files.map(file), expected);
    }
}
