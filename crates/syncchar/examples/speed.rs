//! Measures the analysis of ten million entries: time and peak memory.
//!
//! ```text
//! cargo run --release -p unconvoy-syncchar --example speed
//! ```
//!
//! Each of the three workloads has 32 threads, 50 entries per section, and windows for 2, 8, 16 and
//! 32 processors. In the first, the threads take one lock in turn, so that every section is drawn,
//! and touch private data and a hot word. In the second, they all touch the same words. In the
//! third, threads take 1000 locks at random.

use std::time::Instant;
use unconvoy_syncchar::{Access, Analysis, Options, Section};

const ENTRIES: u64 = 10_000_000;
const PER_SECTION: u64 = 50;
const THREADS: u64 = 32;

fn main() {
    type Shape = fn(u64, &mut fastrand::Rng) -> (u32, u32, u64);
    let shapes: [(&str, Shape); 3] = [
        ("in turn, private data and a counter", |section, _| {
            (0, (section % THREADS) as u32, (section % THREADS) << 20)
        }),
        ("in turn, all the same data", |section, _| (0, (section % THREADS) as u32, 0)),
        ("at random, 1000 locks", |section, rng| {
            let lock = rng.u64(..1000);
            (lock as u32, rng.u32(..THREADS as u32), (lock << 20) + (section % 97) * 8)
        }),
    ];
    for (name, shape) in shapes {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut analysis = Analysis::new(Options::default()).expect("valid defaults");
        let start = Instant::now();
        for number in 0..ENTRIES / PER_SECTION {
            let (lock, thread, base) = shape(number, &mut rng);
            let accesses = (0..PER_SECTION as u32).map(|entry| match entry {
                0 => Access {
                    address: 0x1000,
                    read: 0xff,
                    written: 0xff,
                    read_place: 1,
                    written_place: 1,
                },
                _ => Access {
                    // Every seventh word is written; not in address order.
                    address: 0x10_0000 + base + u64::from(entry * 37 % 64) * 8,
                    read: 0xff,
                    written: if entry % 7 == 0 { 0xff } else { 0 },
                    read_place: entry,
                    written_place: if entry % 7 == 0 { entry } else { 0 },
                },
            });
            analysis.section(Section { lock, thread, ..Section::default() }, accesses);
        }
        let locks = analysis.finish();
        let windows: u64 =
            locks.iter().flat_map(|lock| &lock.estimates).map(|estimates| estimates.windows).sum();
        println!(
            "{name}: {:.2} s, {windows} windows, peak {} MiB",
            start.elapsed().as_secs_f64(),
            peak_mib()
        );
    }
}

/// Peak resident memory of the process in MiB; 0 if /proc does not say.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}
