//! Strategies: a process whose locks have different algorithms.
//!
//! `unconvoy run --strategy` passes the resolved strategy in
//! [`UNCONVOY_STRATEGY`](environment::STRATEGY). Each lock has a *number*, which is kept in the
//! lock's object:
//!
//! | number | the lock is |
//! | --- | --- |
//! | [`UNDECIDED`] | unused since its initialisation; in a process without a strategy, every lock |
//! | [`DEFAULT`] | served as in a process without a strategy |
//! | [`FIRST`] and above | served by a choice of the strategy |
//! | [`LIBC`] | served by libc |
//!
//! **Invariant 1.** A number changes only from `UNDECIDED`, by one compare-and-swap, and an
//! undecided lock's state is not touched. So all threads use the lock by the same algorithm from
//! its first acquisition on. An initialisation, and a program that assigns an initialiser, return
//! the lock to `UNDECIDED`.
//!
//! **Invariant 2.** The rules decide which algorithm serves a lock, never whether it is correct: a
//! rule that matches the wrong lock costs speed only.
//!
//! **Memory orderings.** The tables by number are filled before the process's
//! [routes](crate::config::route) are published, and read after a route was.

mod module;

use core::ptr;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize};

use unconvoy_locks::catalogue::strategy::{
    Choice, MOST_CHOICES, Names, Rule, Word, split_load, words,
};
use unconvoy_locks::catalogue::{availability, environment};
use unconvoy_locks::runtime;

use crate::cancel;
use crate::chosen;
use crate::dispatch::{self, Pair};
use crate::message;
use crate::profile;
use crate::variables::variable;

/// The number of a lock whose algorithm is not decided.
pub(crate) const UNDECIDED: u8 = 0;
/// The number of a lock that no rule names.
pub(crate) const DEFAULT: u8 = 1;
const FIRST: u8 = 2;
pub(crate) const LIBC: u8 = u8::MAX;

/// Calls of a lock function whose places are compared with the rules.
const DEPTH: usize = 8;

/// The pair that serves the locks with each number; null for libc.
static PAIRS: [AtomicPtr<Pair>; u8::MAX as usize + 1] =
    [const { AtomicPtr::new(ptr::null_mut()) }; u8::MAX as usize + 1];

/// How long waiters for the locks with each number spin, in microseconds; 0: as their load manager
/// decides.
static SPINS: [AtomicU32; u8::MAX as usize + 1] =
    [const { AtomicU32::new(0) }; u8::MAX as usize + 1];

/// The rules, sorted, in a mapping of their own.
static RULES: AtomicPtr<Rule> = AtomicPtr::new(ptr::null_mut());
static RULE_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The number of locks that no rule names.
static DEFAULT_NUMBER: AtomicU8 = AtomicU8::new(DEFAULT);

/// Whether locks have numbers.
static DECIDES: AtomicBool = AtomicBool::new(false);

/// Whether some choice elides, and may.
static ELIDES: AtomicBool = AtomicBool::new(false);

/// The type of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Mutex,
    RwLock,
}

/// When a lock's algorithm is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    Initialised,
    FirstTaken,
}

impl Kind {
    fn names(self, when: Option<When>) -> Names {
        match (self, when) {
            (Kind::Mutex, None) => Names::Mutex,
            (Kind::Mutex, Some(When::Initialised)) => Names::InitialisedMutex,
            (Kind::Mutex, Some(When::FirstTaken)) => Names::FirstTakenMutex,
            (Kind::RwLock, None) => Names::RwLock,
            (Kind::RwLock, Some(When::Initialised)) => Names::InitialisedRwLock,
            (Kind::RwLock, Some(When::FirstTaken)) => Names::FirstTakenRwLock,
        }
    }
}

/// Whether locks have numbers in this process; false also while its service is not determined.
#[inline(always)]
pub(crate) fn decides() -> bool {
    DECIDES.load(Relaxed)
}

/// Whether some lock's sections may be elided.
pub(crate) fn may_elide() -> bool {
    ELIDES.load(Relaxed)
}

/// The pair of a lock with this number, which is not libc's.
#[inline]
pub(crate) fn pair(number: u8) -> &'static Pair {
    by_number(number).unwrap_or_else(chosen::pair)
}

/// Bounds the spinning of the calling thread, which waits for a lock with this number.
pub(crate) fn bound_spin(number: u8) {
    runtime::set_spin_ns(1_000 * u64::from(SPINS[usize::from(number)].load(Relaxed)));
}

/// Whether a strategy lets the sections of a lock with this number be elided.
pub(crate) fn elides(number: u8) -> bool {
    number >= FIRST && ELIDES.load(Relaxed) && by_number(number).is_some_and(|pair| pair.elides)
}

/// A number whose locks may be elided.
pub(crate) fn elided_number() -> Option<u8> {
    (FIRST..LIBC).find(|&number| elides(number))
}

#[inline]
fn by_number(number: u8) -> Option<&'static Pair> {
    // SAFETY: null or an element of the table of pairs.
    unsafe { PAIRS[usize::from(number)].load(Relaxed).as_ref() }
}

/// The number of the locks of a choice.
fn number_of(choice: u8) -> u8 {
    let number = FIRST + choice;
    if by_number(number).is_some() { number } else { LIBC }
}

fn serve(number: u8, pair: Option<&'static Pair>) {
    let pair = pair.map_or(ptr::null(), ptr::from_ref);
    PAIRS[usize::from(number)].store(pair.cast_mut(), Relaxed);
}

/// Whether libc serves the locks that no rule names.
pub(crate) fn leaves_the_others_to_libc() -> bool {
    DECIDES.load(Relaxed) && DEFAULT_NUMBER.load(Relaxed) == LIBC
}

/// The number for a lock that the calling thread takes for the first time.
#[cold]
pub(crate) fn number_at_first_use(kind: Kind, address: usize) -> u8 {
    number(kind, address, When::FirstTaken).unwrap_or_else(|| DEFAULT_NUMBER.load(Relaxed))
}

/// The number for a lock that the calling thread initialises; `None` if no rule applies yet.
#[cold]
pub(crate) fn number_at_initialisation(kind: Kind, address: usize) -> Option<u8> {
    number(kind, address, When::Initialised)
}

/// The number by the rules. The lock's address comes first, then the calls of the lock function,
/// innermost first.
fn number(kind: Kind, address: usize, when: When) -> Option<u8> {
    let by_address = || find(kind.names(None), address);
    let by_call = || {
        let names = kind.names(Some(when));
        of(rules(), names).first()?;
        let mut frames = [0; DEPTH];
        // An asynchronous cancellation must not unwind the unwinder.
        let depth = if cancel::is_asynchronous() { None } else { profile::unwind(&mut frames) }?;
        // The last byte of the call: the call may be the last instruction of its function.
        frames[..depth].iter().find_map(|frame| find(names, *frame as usize - 1))
    };
    by_address().or_else(by_call).map(number_of)
}

fn rules() -> &'static [Rule] {
    let rules = RULES.load(Acquire);
    if rules.is_null() {
        return &[];
    }
    // SAFETY: the mapping of `store`, which is filled and never unmapped.
    unsafe { core::slice::from_raw_parts(rules, RULE_COUNT.load(Relaxed)) }
}

/// The rules for `names`.
fn of(rules: &[Rule], names: Names) -> &[Rule] {
    let first = rules.partition_point(|rule| rule.names < names);
    let end = rules.partition_point(|rule| rule.names <= names);
    &rules[first..end]
}

/// The choice of the rule that contains an address of a loaded module.
fn find(names: Names, address: usize) -> Option<u8> {
    let rules = of(rules(), names);
    if rules.is_empty() {
        return None;
    }
    let module = module::at(address)?;
    let own = (address as u64).wrapping_sub(module.bias);
    let after = rules.partition_point(|rule| (rule.module, rule.start) <= (module.identity, own));
    let rule = &rules[after.checked_sub(1)?];
    (rule.module == module.identity && own < rule.end).then_some(rule.choice)
}

/// Reads the strategy from the environment. `elides` says whether sections may be elided: neither
/// statistics nor a profile count them. Called once, before the service is published.
pub(crate) fn read(elides: bool) {
    [UNDECIDED, DEFAULT].iter().for_each(|number| serve(*number, Some(chosen::pair())));
    let Some(text) = variable(&environment::STRATEGY) else { return };
    let Some(words) = words(text) else { return message::strategy_of_other_version().print() };
    if !module::begin() {
        return message::no_strategy_old_libc().print();
    }
    let rules = text.split(' ').filter(|word| word.contains('=')).count();
    let Some(room) = map(rules) else { return message::no_memory_for_strategy().print() };
    let (mut choices, mut filled, mut default) = (0_u8, 0, None);
    for word in words {
        match word {
            Some(Word::Choice(choice)) if usize::from(choices) < MOST_CHOICES => {
                let (pair, spin) = pair_of(choice);
                serve(FIRST + choices, pair);
                SPINS[usize::from(FIRST + choices)].store(spin, Relaxed);
                choices += 1;
            }
            Some(Word::Rule(rule)) if rule.choice < choices => {
                room[filled] = rule;
                filled += 1;
            }
            Some(Word::Default(choice)) if choice < choices => default = Some(choice),
            _ => {}
        }
    }
    let room = &mut room[..filled];
    room.sort_unstable();
    RULE_COUNT.store(room.len(), Relaxed);
    RULES.store(room.as_mut_ptr(), Release);
    if let Some(choice) = default {
        DEFAULT_NUMBER.store(number_of(choice), Relaxed);
    } else if elides && chosen::pair().elides {
        // The process's own pair elides: it becomes a choice like the others.
        serve(FIRST + choices, Some(chosen::pair()));
        DEFAULT_NUMBER.store(FIRST + choices, Relaxed);
    }
    let is_eliding = |number| by_number(number).is_some_and(|pair| pair.elides);
    ELIDES.store(elides && (FIRST..LIBC).any(is_eliding), Relaxed);
    profile::prepare_unwinding();
    DECIDES.store(true, Relaxed);
}

/// The pair of a choice, `None` for libc, and the spinning time of its locks.
fn pair_of(choice: Choice<'_>) -> (Option<&'static Pair>, u32) {
    match choice {
        Choice::Libc => (None, 0),
        // The command passes only pairs of the catalogue that this machine can run.
        Choice::Pair(lock, load) => {
            let (load, spin) = split_load(load).unwrap_or((load, None));
            // Looks up what the lock needs now: a look-up by its first holder could deadlock.
            let _ = availability(lock);
            let pair = dispatch::find(lock, load).unwrap_or_else(chosen::pair);
            (Some(pair), spin.unwrap_or(0))
        }
    }
}

/// Memory for `count` rules that is never unmapped.
fn map(count: usize) -> Option<&'static mut [Rule]> {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let length = (count * size_of::<Rule>()).max(1);
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh anonymous mapping. Zeroes are a valid `Rule`, whose `names` are the first.
    unsafe {
        let memory = mmap_anonymous(ptr::null_mut(), length, access, MapFlags::PRIVATE).ok()?;
        Some(core::slice::from_raw_parts_mut(memory.cast::<Rule>(), count))
    }
}
