//! `unconvoy profile --read` on a file whose tables are full, as after hours in a large program.

mod stage;

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use object::{Object, ObjectSymbol};
use stage::Stage;
use unconvoy_profile::layout::{
    COUNT_UNIT, FRAMES, LOCKS, MAGIC, ORIGINS, SAMPLES, STACKS, VERSION,
};
use unconvoy_profile::{Kind, Profile, layout, mix};

/// Functions of the program.
const FUNCTIONS: usize = 5000;

/// Frames of a stack, so that the tables of stacks and of frames are full at the same time.
const DEPTH: usize = FRAMES / STACKS;

const BASE: u64 = 0x5500_0000_0000;

/// A program with many functions, each with a lock of its own and a member of an object to lock.
fn source() -> String {
    let mut text = "#include <pthread.h>\nstruct node { long size; pthread_mutex_t lock; };\n\
                    int main(void) { return 0; }\n"
        .to_string();
    for number in 0..FUNCTIONS {
        let _ = write!(
            text,
            "pthread_mutex_t lock_{number};\nvoid f{number}(struct node *node)\n{{\n\
             \tpthread_mutex_lock(&lock_{number});\n\tpthread_mutex_lock(&node->lock);\n\
             \tnode->size++;\n\tpthread_mutex_unlock(&node->lock);\n}}\n"
        );
    }
    text
}

/// Fills all tables: the frames are in random functions.
fn full(profile: &Profile, functions: &[u64], locks: &[u64]) {
    let random = |seed: u64, below: usize| (mix(seed + 1) % below as u64) as usize;
    for turn in 0..2 * STACKS as u64 {
        let frames = (0..DEPTH as u64)
            .map(|depth| functions[random(turn << 8 | depth, functions.len())] + 30)
            .collect::<Vec<_>>();
        profile.stack(&frames, 0);
    }
    let mut entries = Vec::new();
    for turn in 0..2 * LOCKS {
        let address = locks.get(turn).copied().unwrap_or(0x1000 + 64 * turn as u64) as usize;
        let stack = 1 + random(turn as u64, STACKS) as u32;
        if turn % 2 == 0 {
            profile.record_origin(address, stack);
        }
        let Some((index, lock)) = profile.lock(Kind::Mutex, address) else { continue };
        lock.first_stack.store(stack, Relaxed);
        entries.push((index, lock));
    }
    for turn in 0..2 * SAMPLES as u64 {
        let (index, lock) = entries[random(turn, entries.len())];
        let ns = 1000 + mix(turn) % 1_000_000;
        profile.record_wait(lock, ns, turn, false);
        profile.record_hold(lock, ns);
        let stacks = (1 + random(turn + 7, STACKS) as u32, 1 + random(turn + 9, STACKS) as u32);
        profile.add_sample(index, stacks, ns, COUNT_UNIT);
        profile.record_long_wait(ns, turn, index, stacks.0, 42);
    }
    assert!(entries.len() > LOCKS / 2 && profile.origins.len() == ORIGINS);
    assert!(profile.header.lost_stacks.load(Relaxed) > 0);
    assert!(profile.header.lost_samples.load(Relaxed) > 0);
}

/// Time on a processor of the children of this process.
fn processor_time() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills `usage`.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let time = |of: libc::timeval| {
        Duration::from_secs(of.tv_sec as u64) + Duration::from_micros(of.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[test]
fn full_profile_opens_within_seconds() {
    let stage = Stage::new();
    let text = source();
    let program =
        stage.compile("many", &stage.write("many.c", &text), &["-pie", "-fPIE", "-g", "-O1"]);
    let program = program.expect("a C compiler");
    let bytes = std::fs::read(&program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let named = |start: char| -> Vec<u64> {
        let symbols = file.symbols().filter(|symbol| {
            let name = symbol.name().unwrap_or_default();
            let number = name.trim_start_matches("lock_").trim_start_matches('f');
            name.starts_with(start) && number.parse::<usize>().is_ok()
        });
        symbols.map(|symbol| BASE + symbol.address()).collect()
    };
    let (functions, locks) = (named('f'), named('l'));
    assert_eq!((functions.len(), locks.len()), (FUNCTIONS, FUNCTIONS));

    let profile = layout::zeroed();
    let header = &profile.header;
    header.magic.store(MAGIC, Relaxed);
    header.version.store(VERSION, Relaxed);
    header.ended.store(1, Relaxed);
    header.unwinds.store(1, Relaxed);
    header.period_ns.store(1_000_000, Relaxed);
    header.last_ns.store(3_600_000_000_000, Relaxed);
    let end = BASE + bytes.len() as u64;
    let maps = format!("{BASE:x}-{end:x} r-xp 00000000 00:00 0 {}\n", program.display());
    maps.bytes().zip(&profile.modules).for_each(|(byte, to)| to.store(byte, Relaxed));
    header.modules_used.store(maps.len() as u32, Relaxed);
    full(&profile, &functions, &locks);
    std::fs::write(stage.path("full.profile"), profile.to_bytes()).unwrap();

    let (begin, before) = (Instant::now(), processor_time());
    let mut command = stage.unconvoy();
    let output = command.args(["profile", "--read", "full.profile"]).output().unwrap();
    let (wall, processor) = (begin.elapsed(), processor_time() - before);
    println!("{wall:.2?}, {processor:.2?} on a processor");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("node::lock") && text.contains("\nlock_"), "{text}");
    // .9 s; 55 s when each look-up read the debug information from its start. Other processes
    // hardly lengthen the time on a processor.
    assert!(processor < Duration::from_secs(10), "{processor:?}");
}
