//! Names in a profile of the kernel's locks.
//!
//! The kernel's addresses mean nothing after the next boot, so the profile has names instead. Each
//! name has its line in the profile's list of mapped files, at addresses of its own. A stack has
//! the kernel's functions, innermost first, then the system call, then the process.

use unconvoy_profile::Recorded;
use unconvoy_profile::read::WaitedLock;

/// Binary logarithm of the number of addresses that a name has.
const SHIFT: u32 = 16;

/// The place of a stack that was not recorded.
const UNKNOWN: &str = "unknown";

/// Starts of the names of functions that implement locks. Their callers are the better places.
const LOCKS: [&str; 22] = [
    "_raw_",
    "__raw_",
    "do_raw_",
    "raw_spin_",
    "native_queued_",
    "__pv_queued_",
    "queued_",
    "rwsem_",
    "down_",
    "__down",
    "up_",
    "mutex_",
    "__mutex_",
    "ww_mutex_",
    "__ww_mutex_",
    "rt_mutex_",
    "__rt_mutex_",
    "rt_spin_",
    "rtlock_",
    "percpu_",
    "__percpu_",
    "lock_",
];

/// The address of a position in a function, or of another name. Names are numbered from 0.
pub fn address(number: usize, offset: u64) -> u64 {
    ((number as u64 + 1) << SHIFT) + offset.min((1 << SHIFT) - 1)
}

/// The line of a name. A process may give itself a name with line breaks, which would end the line.
pub fn line(number: usize, name: &str) -> String {
    let start = address(number, 0);
    let name = name.replace(char::is_control, "?");
    format!("{start:x}-{:x} r-xp 00000000 00:00 0 /{name}\n", start + (1 << SHIFT))
}

/// Names for one profile.
pub struct KernelNames<'a> {
    recorded: &'a Recorded,
    /// By number.
    names: Vec<String>,
}

impl<'a> KernelNames<'a> {
    pub fn new(recorded: &'a Recorded) -> Self {
        let mut names = Vec::new();
        for mapping in &recorded.mappings {
            let number = (mapping.start >> SHIFT) as usize;
            let name = mapping.path.to_string_lossy();
            // A damaged file may have any number.
            if (1..=recorded.mappings.len()).contains(&number) {
                names.resize(names.len().max(number), String::new());
                names[number - 1] = name.strip_prefix('/').unwrap_or(&name).to_string();
            }
        }
        KernelNames { recorded, names }
    }

    fn name(&self, address: u64) -> &str {
        let number = (address >> SHIFT) as usize;
        number.checked_sub(1).and_then(|index| self.names.get(index)).map_or(UNKNOWN, |name| name)
    }

    /// A lock's name: its static variable or member, or the place of its first recorded wait.
    pub fn lock(&self, lock: &WaitedLock) -> String {
        let kind = lock.kind.name();
        match self.recorded.stack(lock.origin) {
            [named, ..] => self.name(*named).to_string(),
            [] if lock.first_stack != 0 => {
                format!("{kind} first waited for in {}", self.place(lock.first_stack))
            }
            [] => format!("{kind} without a sampled wait"),
        }
    }

    /// The functions of a stack, innermost first, without the system call and the process.
    fn functions(&self, stack: u32) -> &[u64] {
        let frames = self.recorded.stack(stack);
        &frames[..frames.len().saturating_sub(2)]
    }

    /// The innermost function that does not implement a lock.
    pub fn place(&self, stack: u32) -> String {
        let mut names = self.functions(stack).iter().map(|&frame| self.name(frame));
        let is_place = |name: &&str| !LOCKS.iter().any(|start| name.starts_with(start));
        names.find(is_place).unwrap_or(UNKNOWN).to_string()
    }

    /// The system call and the process.
    pub fn caller(&self, stack: u32) -> String {
        match self.recorded.stack(stack) {
            [.., call, task] => format!("{} by {}", self.name(*call), self.name(*task)),
            _ => UNKNOWN.to_string(),
        }
    }

    /// The process, the system call and the functions, outermost first.
    pub fn frames(&self, stack: u32) -> Vec<String> {
        let frames = self.recorded.stack(stack).iter().rev();
        let names: Vec<String> = frames.map(|&frame| self.name(frame).to_string()).collect();
        if names.is_empty() { vec![UNKNOWN.to_string()] } else { names }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_line_break_stays_one_line() {
        assert_eq!(
            line(0, "a\n0-fffff 0\0/b"),
            "10000-20000 r-xp 00000000 00:00 0 /a?0-fffff 0?/b\n"
        );
    }
}
