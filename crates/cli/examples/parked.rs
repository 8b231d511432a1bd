//! Two locks of parking_lot, for the tests of `unconvoy profile --pid`. One thread waits for both
//! of them, each held by another thread for a known time. Prints the nanoseconds waited, and
//! those in which it was runnable without running.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

static QUEUE: Mutex<u64> = Mutex::new(0);
static IS_HELD: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn hold_here(lock: &Mutex<u64>, time: Duration) {
    let mut jobs = lock.lock();
    IS_HELD.store(true, SeqCst);
    std::thread::sleep(time);
    *jobs += 1;
    drop(jobs);
    std::hint::black_box(&time); // so that the release is no tail call
}

#[inline(never)]
fn wait_for_queue() {
    *QUEUE.lock() += 1;
}

#[inline(never)]
fn wait_for_heap(lock: &Mutex<u64>) {
    *lock.lock() += 2;
}

/// Time in nanoseconds that this thread was runnable without running (proc(5), `schedstat`).
fn delayed() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|time| time.parse().ok()).unwrap_or(0)
}

fn main() {
    std::io::stdin().read_exact(&mut [0]).expect("a line");
    let heap = Arc::new(Mutex::new(0));
    let (mut waited, mut delay) = ([Duration::ZERO; 2], [0; 2]);
    let has_waited = |waited: Duration, delay: u64| {
        waited.saturating_sub(Duration::from_nanos(delay)) >= Duration::from_millis(100)
    };
    for round in 0..10_000 {
        // On a busy machine the holder's time may pass before this thread runs.
        if round >= 100 && (0..2).all(|lock| has_waited(waited[lock], delay[lock])) {
            break;
        }
        let other = Arc::clone(&heap);
        IS_HELD.store(false, SeqCst);
        let holder = std::thread::spawn(move || match round % 2 {
            0 => hold_here(&QUEUE, Duration::from_millis(10)),
            _ => hold_here(&other, Duration::from_millis(20)),
        });
        while !IS_HELD.load(SeqCst) {
            std::thread::yield_now();
        }
        let before = delayed();
        let begin = Instant::now();
        match round % 2 {
            0 => wait_for_queue(),
            _ => wait_for_heap(&heap),
        }
        waited[round % 2] += begin.elapsed();
        delay[round % 2] += delayed() - before;
        holder.join().expect("the holder ends");
    }
    let [first, second] = waited.map(|time| time.as_nanos());
    println!("{first} {second} {} {}", delay[0], delay[1]);
}
