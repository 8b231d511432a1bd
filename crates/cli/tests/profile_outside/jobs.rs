use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
static QUEUE: Mutex<u64> = Mutex::new(0);
static IS_HELD: AtomicBool = AtomicBool::new(false);
#[inline(never)]
fn hold_here(lock: &Mutex<u64>) {
    let mut jobs = lock.lock().unwrap();
    IS_HELD.store(true, SeqCst);
    std::thread::sleep(Duration::from_millis(10));
    *jobs += 1;
    drop(jobs);
    *lock.lock().unwrap() += 1;
}
#[inline(never)]
fn wait_here(lock: &Mutex<u64>) {
    *lock.lock().unwrap() += 1;
}
/// Time in nanoseconds that this thread was runnable without running (proc(5), `schedstat`).
fn delayed() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|time| time.parse().ok()).unwrap_or(0)
}
fn main() {
    std::io::stdin().read_exact(&mut [0]).unwrap();
    let heap = Arc::new(Mutex::new(0));
    let (mut waited, mut delay) = ([Duration::ZERO; 2], [0; 2]);
    for round in 0..100 {
        let other = Arc::clone(&heap);
        IS_HELD.store(false, SeqCst);
        let holder = std::thread::spawn(move || {
            hold_here(if round % 2 == 0 { &QUEUE } else { &other })
        });
        while !IS_HELD.load(SeqCst) {
            std::thread::yield_now();
        }
        let before = delayed();
        let begin = Instant::now();
        wait_here(if round % 2 == 0 { &QUEUE } else { &heap });
        waited[round % 2] += begin.elapsed();
        delay[round % 2] += delayed() - before;
        holder.join().unwrap();
    }
    let [first, second] = waited.map(|time| time.as_nanos());
    println!("{first} {second} {} {}", delay[0], delay[1]);
}
