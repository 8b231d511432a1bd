//! The classes of the metrics: a lock's kind, and its place in the program.
//!
//! The look-up of a place searches a file's symbols, which takes milliseconds, and a table has
//! thousands of locks. Each write of the file therefore looks up at most [`LOOK_UPS`] places. A
//! lock joins a known class without a look-up if it lies in that class's variable, or if its first
//! wait had the stack of an earlier lock that is not static. A lock that finds no look-up left
//! stays in the class of all others.
//!
//! A wait has a stack only if it was sampled. A lock that is not static and whose waits had no
//! stack yet is left out, until a sample is overdue or the process ends. To find that it is not
//! static takes a reading of the list of files, so each write does that for at most [`FIRST_LOOKS`]
//! locks, and only once for a lock.
//!
//! **Invariant 1.** A lock never changes its class, so that all counters only grow.
//!
//! Only the thread that writes the metrics uses this module, except in the child of a `fork`.

use core::ops::Range;
use core::sync::atomic::AtomicU8;
use core::sync::atomic::Ordering::Relaxed;

use unconvoy_profile::Profile;
use unconvoy_profile::layout::{LOCKS, STACKS};

use super::exposition::printable;
use super::name::Name;
use super::place::{self, Place};

/// Number of classes with series of their own.
pub(super) const CLASSES: usize = 50;

/// The number plus one of the class of all other locks.
const OTHER: u8 = CLASSES as u8 + 1;

/// Longest label of a class.
const LABEL: usize = 120;

/// Most look-ups in one write of the file. They take less than a second in a large program.
const LOOK_UPS: usize = 64;

/// Most locks without a stack that one write of the file looks at.
const FIRST_LOOKS: usize = 256;

/// Waits of this total length almost certainly have a sample: one is taken in a millisecond.
const SAMPLE_OVERDUE_NS: u64 = 10_000_000;

/// Stands for the class of a lock that is not static and has none yet.
const NOT_STATIC: u8 = u8::MAX;

/// Number of each lock's class plus one; 0 or [`NOT_STATIC`] if it has none yet.
static CLASS_OF: [AtomicU8; LOCKS] = [const { AtomicU8::new(0) }; LOCKS];

/// A class with series of its own.
pub(super) struct Class {
    pub(super) kind: u32,
    pub(super) label: Name<LABEL>,
    /// The addresses of its static variable; empty for the locks of a function.
    variable: Range<u64>,
}

/// All classes.
pub(super) struct Classes {
    count: usize,
    all: [Class; CLASSES],
    /// For each stack, the class of the locks that are not static and whose first wait was there:
    /// its number plus one, or 0 if no such lock is known.
    of_stacks: [u8; STACKS + 1],
    /// Look-ups that are left for this write of the file.
    look_ups: usize,
    /// Looks at locks without a stack that are left.
    first_looks: usize,
    /// Whether this is the last write.
    is_last: bool,
}

impl Classes {
    pub(super) const fn new() -> Self {
        Classes {
            count: 0,
            all: [const { Class { kind: 0, label: Name::EMPTY, variable: 0..0 } }; CLASSES],
            of_stacks: [0; STACKS + 1],
            look_ups: 0,
            first_looks: 0,
            is_last: false,
        }
    }

    /// The classes with series of their own, in the order of their numbers.
    pub(super) fn known(&self) -> &[Class] {
        &self.all[..self.count]
    }

    /// Begins a write of the file.
    pub(super) fn begin(&mut self, is_last: bool) {
        (self.look_ups, self.first_looks, self.is_last) = (LOOK_UPS, FIRST_LOOKS, is_last);
        // If no lock has a class, all classes are those of the parent process.
        if CLASS_OF.iter().all(|class| class.load(Relaxed) == 0) {
            self.count = 0;
            self.of_stacks.fill(0);
        }
    }

    /// The number of the class of a lock, by its index. [`CLASSES`] stands for all other locks.
    /// `None`: the lock is left out.
    pub(super) fn of(&mut self, profile: &Profile, index: usize, kind: u32) -> Option<usize> {
        let (lock, class) = (&profile.locks[index], &CLASS_OF[index]);
        let mut number = class.load(Relaxed);
        if number == 0 || number == NOT_STATIC {
            let (address, stack) = (&lock.address, &lock.first_stack);
            let first = (address.load(Relaxed), stack.load(Relaxed) as usize);
            let is_overdue = lock.wait_ns.load(Relaxed) >= SAMPLE_OVERDUE_NS;
            if number == NOT_STATIC && !self.is_due(first.1, is_overdue) {
                return None;
            }
            number = self.choose(kind, first, is_overdue, || place::of(profile, lock));
            class.store(number, Relaxed);
        }
        usize::from(number).checked_sub(1).filter(|_| number != NOT_STATIC)
    }

    /// Whether a lock with this stack of its first wait gets a class even if it is not static.
    fn is_due(&self, stack: usize, is_overdue: bool) -> bool {
        stack != 0 || is_overdue || self.is_last
    }

    /// Chooses the class of a lock that has none, from its address and the stack of its first wait.
    /// Returns the class's number plus one, or 0 or [`NOT_STATIC`] if the lock is left out.
    /// `look_up` finds the lock's place.
    fn choose(
        &mut self,
        kind: u32,
        (address, stack): (u64, usize),
        is_overdue: bool,
        look_up: impl FnOnce() -> Place<LABEL>,
    ) -> u8 {
        let contains_lock = |class: &Class| class.kind == kind && class.variable.contains(&address);
        if let Some(known) = self.known().iter().position(contains_lock) {
            return known as u8 + 1;
        }
        let of_stack = self.of_stacks.get(stack).copied().unwrap_or(0);
        let known = usize::from(of_stack).checked_sub(1).and_then(|known| self.known().get(known));
        if of_stack == OTHER || known.is_some_and(|class| class.kind == kind) {
            return of_stack;
        }
        let is_due = self.is_due(stack, is_overdue);
        if self.look_ups == 0 || !is_due && self.first_looks == 0 {
            return if is_due { OTHER } else { 0 };
        }
        self.first_looks -= usize::from(!is_due);
        let Place { name, variable } = look_up();
        let is_static = !variable.is_empty();
        if !is_static && !is_due {
            return NOT_STATIC;
        }
        // Without a variable or a stack, no symbols were searched.
        self.look_ups -= usize::from(is_static || stack != 0);
        let class = self.named(Class { kind, label: name.map(printable), variable });
        if !is_static
            && stack != 0
            && let Some(of_stack) = self.of_stacks.get_mut(stack)
        {
            *of_stack = class;
        }
        class
    }

    /// The number plus one of the class with this kind and label, which is added if it is new.
    fn named(&mut self, class: Class) -> u8 {
        let is_same = |it: &Class| it.kind == class.kind && it.label == class.label;
        if let Some(known) = self.known().iter().position(is_same) {
            return known as u8 + 1;
        }
        let Some(room) = self.all.get_mut(self.count) else { return OTHER };
        *room = class;
        self.count += 1;
        self.count as u8
    }
}

/// Forgets the parent's locks, in the child of a `fork`.
pub(super) fn after_fork() {
    CLASS_OF.iter().for_each(|class| class.store(0, Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUTEX: u32 = 1;
    const RWLOCK: u32 = 2;

    /// Classes at the beginning of a write of the file.
    fn classes() -> Box<Classes> {
        let mut classes = Box::new(Classes::new());
        classes.begin(false);
        classes
    }

    fn place(name: &[u8], variable: Range<u64>) -> Place<LABEL> {
        let mut place = Place { name: Name::EMPTY, variable };
        place.name.add(name);
        place
    }

    fn no_look_up() -> Place<LABEL> {
        panic!("looked up")
    }

    #[test]
    fn lock_joins_class_of_its_stack_without_look_up() {
        let mut classes = classes();
        let class = classes.choose(MUTEX, (8, 3), true, || place(b"wait in a", 0..0));
        assert_eq!(classes.choose(MUTEX, (16, 3), true, no_look_up), class);
        let of_rwlock = classes.choose(RWLOCK, (24, 3), true, || place(b"wait in a", 0..0));
        assert_ne!(of_rwlock, class);
        // Stack 0 is unknown, so it says nothing of the lock.
        classes.choose(MUTEX, (32, 0), true, || place(b"unknown", 0..0));
        let named = classes.choose(MUTEX, (40, 0), true, || place(b"lock in a", 40..48));
        assert_eq!(classes.known()[usize::from(named) - 1].label.bytes(), b"lock in a");
    }

    #[test]
    fn lock_without_stack_is_left_out_until_a_sample_is_overdue() {
        let mut classes = classes();
        let unknown = || place(b"unknown", 0..0);
        assert_eq!(classes.choose(MUTEX, (8, 0), false, unknown), NOT_STATIC);
        assert_ne!(classes.choose(MUTEX, (8, 3), false, || place(b"wait in a", 0..0)), 0);
        assert_ne!(classes.choose(MUTEX, (40, 0), false, || place(b"lock in a", 40..48)), 0);
        assert_ne!(classes.choose(MUTEX, (16, 0), true, unknown), 0);
        classes.begin(true);
        assert_ne!(classes.choose(RWLOCK, (24, 0), false, unknown), 0);
    }

    #[test]
    fn locks_without_stack_beyond_the_first_looks_wait_for_the_next_writing() {
        let mut classes = classes();
        for _ in 0..FIRST_LOOKS {
            classes.choose(MUTEX, (8, 0), false, || place(b"unknown", 0..0));
        }
        assert_eq!(classes.choose(MUTEX, (16, 0), false, no_look_up), 0);
        assert_ne!(classes.choose(MUTEX, (24, 3), false, || place(b"wait in a", 0..0)), 0);
        classes.begin(false);
        assert_ne!(classes.choose(MUTEX, (16, 0), false, || place(b"lock in a", 16..24)), 0);
    }

    #[test]
    fn locks_of_one_variable_need_one_look_up() {
        let mut classes = classes();
        let array = classes.choose(MUTEX, (100, 5), true, || place(b"array in a", 100..200));
        assert_eq!(classes.choose(MUTEX, (140, 6), true, no_look_up), array);
        let other = classes.choose(MUTEX, (300, 5), true, || place(b"other in a", 300..308));
        assert_ne!(other, array, "another variable, at the same stack");
    }

    #[test]
    fn locks_beyond_the_look_ups_of_a_writing_are_in_no_class() {
        let mut classes = classes();
        for number in 1..=LOOK_UPS {
            classes.choose(MUTEX, (8, 0), true, || place(b"unknown", 0..0));
            classes.choose(MUTEX, (8, number), true, || place(b"wait in a", 0..0));
        }
        assert_eq!(classes.choose(MUTEX, (1000, 700), true, no_look_up), OTHER);
        classes.begin(false);
        let later = classes.choose(MUTEX, (1001, 700), true, || place(b"wait in a", 0..0));
        assert_ne!(later, OTHER);
    }

    #[test]
    fn classes_beyond_the_last_share_one() {
        let mut classes = classes();
        for number in 0..CLASSES as u8 {
            let class =
                classes.choose(MUTEX, (number.into(), 0), true, || place(&[b'0' + number], 0..0));
            assert_eq!(class, number + 1);
        }
        assert_eq!(classes.choose(MUTEX, (1000, 7), true, || place(b"wait in a", 0..0)), OTHER);
        assert_eq!(classes.choose(MUTEX, (1001, 7), true, no_look_up), OTHER);
    }

    /// Two series with the same labels made node_exporter refuse the file.
    #[test]
    fn names_that_are_shown_alike_share_a_class() {
        let mut classes = classes();
        let first = classes.choose(MUTEX, (8, 1), true, || place(b"caf\xe9 in a", 0..0));
        let second = classes.choose(MUTEX, (16, 2), true, || place(b"caf\xe8 in a", 0..0));
        assert_eq!(first, second);
        assert_eq!(classes.known()[0].label.bytes(), b"caf? in a");
    }
}
