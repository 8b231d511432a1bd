//! The plug-in's own thread. A program that idles, or is killed from outside, makes no callback any
//! more: ten times a second what is pending is written, and once a second how often each lock was
//! acquired by now. So what such a program loses is a tenth of a second of sections and a second of
//! counts.

use crate::collector::{Collector, collector};
use std::time::{Duration, Instant};
use unconvoy_trace_collector::front::guarded;
use unconvoy_trace_collector::log::WRITE_EVERY;

/// Between two writings of all counts.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// For many locks that takes long: at most one in so many parts of the time is spent on it.
const COUNTING: u32 = 50;

const STACK: usize = 256 << 10;

/// Starts it; what hinders it otherwise. It ends with the stream. A forked child has no such
/// thread, and needs none.
pub fn start() -> std::io::Result<()> {
    // The program's signals are for its own threads: QEMU's handlers know no other.
    let (mut all, mut before) = (std::mem::MaybeUninit::uninit(), std::mem::MaybeUninit::uninit());
    // SAFETY: the calls fill the sets, which are valid for them; the mask is restored below.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let started =
        std::thread::Builder::new().name("unconvoy".into()).stack_size(STACK).spawn(|| guarded::<Collector>(run));
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
