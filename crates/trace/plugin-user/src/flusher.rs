//! The plug-in's own thread. A program that idles or is killed from outside makes no callbacks. So
//! this thread writes the pending records ten times a second, and the locks' counts once a second.
//! Such a program loses at most a tenth of a second of sections and a second of counts.

use crate::collector::{Collector, collector};
use std::time::{Duration, Instant};
use unconvoy_trace_collector::front::guarded;
use unconvoy_trace_collector::log::WRITE_EVERY;

/// The interval between writes of all counts.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// Writing the counts of many locks takes long. The thread spends at most 1/50 of its time on it.
const COUNTING: u32 = 50;

const STACK: usize = 256 << 10;

/// Starts the thread, which ends with the stream. A forked child has no such thread and needs none.
///
/// # Errors
///
/// The thread cannot be started.
pub fn start() -> std::io::Result<()> {
    // Block all signals: QEMU's handlers expect the program's own threads.
    let (mut all, mut before) = (std::mem::MaybeUninit::uninit(), std::mem::MaybeUninit::uninit());
    // SAFETY: the calls fill valid sets; the mask is restored below.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = std::thread::Builder::new()
        .name("unconvoy".into())
        .stack_size(STACK)
        .spawn(|| guarded::<Collector>(run));
    // SAFETY: filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started.map(drop)
}

fn run() {
    let mut next = Instant::now() + COUNT_EVERY;
    loop {
        std::thread::sleep(WRITE_EVERY);
        let Some(collector) = collector() else { return };
        collector.request_counts();
        let now = Instant::now();
        if now >= next {
            collector.write_counts();
            next = now + COUNT_EVERY.max(now.elapsed() * COUNTING);
        }
        collector.collection.log.write_if_due();
    }
}
