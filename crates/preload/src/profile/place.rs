//! The place of a lock in the program, as a name that is the same in each run: a symbol and its
//! file, or an offset in the file.
//!
//! Nothing here allocates. The files' symbols are read with `pread`, because a mapped file that
//! somebody truncates would kill the process.

use core::fmt::Write as _;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use unconvoy_profile::Profile;
use unconvoy_profile::layout::{DEPTH, Lock, TIME_SHIFT};

use super::name::Name;
use super::symbols::{self, Wanted};

/// The place of a static lock, or else of the code that first waited for the lock.
pub(super) fn of<const N: usize>(profile: &Profile, lock: &Lock) -> Name<N> {
    let address = lock.address.load(Relaxed);
    let named = |address, wanted| find(profile, address, wanted);
    if let Some(name) = named(address, Wanted::Variable) {
        return name;
    }
    let stack = lock.first_stack.load(Relaxed);
    let stack = (stack as usize).checked_sub(1).and_then(|index| profile.stacks.get(index));
    let depth = stack.map_or(0, |stack| stack.depth.load(Acquire) & ((1 << TIME_SHIFT) - 1));
    let first = stack.map_or(0, |stack| stack.first.load(Relaxed)) as usize;
    let frames = profile.frames.get(first..first + (depth as usize).min(DEPTH));
    // A return address may belong to the next function, so look up the last byte of the call.
    let calls = frames.unwrap_or_default().iter().map(|frame| frame.load(Relaxed) - 1);
    let mut places = calls.filter_map(|pc| named(pc, Wanted::Function));
    places.next().unwrap_or_else(|| {
        let mut name = Name::EMPTY;
        name.add(b"unknown");
        name
    })
}

/// The name of an address in a file; `None` outside of all files.
fn find<const N: usize>(profile: &Profile, address: u64, wanted: Wanted) -> Option<Name<N>> {
    let used = (profile.header.modules_used.load(Acquire) as usize).min(profile.modules.len());
    let mut line = [0; 4200];
    let mut length = 0;
    let mut found = None;
    for byte in &profile.modules[..used] {
        match byte.load(Relaxed) {
            b'\n' => {
                found = place_in(&line[..length], address, wanted).or(found);
                length = 0;
            }
            byte if length < line.len() - 1 => {
                line[length] = byte;
                length += 1;
            }
            _ => {}
        }
    }
    found
}

/// The name of an address, if it is in the file whose start is mapped by this line of
/// `/proc/self/maps`.
fn place_in<const N: usize>(line: &[u8], address: u64, wanted: Wanted) -> Option<Name<N>> {
    let path = &line[line.iter().position(|&byte| byte == b'/')?..];
    let text = core::str::from_utf8(&line[..line.len() - path.len()]).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let (start, _) = fields.next()?.split_once('-')?;
    let base = u64::from_str_radix(start, 16).ok()?;
    let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
    if offset != 0 || address < base {
        return None;
    }
    let mut name = Name::EMPTY;
    if !symbols::find(path, address - base, wanted, &mut name)? {
        let _ = write!(name, "+{:#x}", address - base);
    }
    name.add(b" in ");
    let slash = path.iter().rposition(|&byte| byte == b'/')?;
    name.add(&path[slash + 1..]);
    Some(name)
}
