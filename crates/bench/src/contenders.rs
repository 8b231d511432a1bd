//! Threads of this process that contend for one lock, as long as they are wanted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use unconvoy::contention::loiter::Loiter;
use unconvoy::load::LoadManager;
use unconvoy::load::control::Control;
use unconvoy::platform::Native;
use unconvoy::raw::RawLock;

/// Running threads; dropping them ends them.
pub struct Contenders {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Contenders {
    /// Starts `count` threads that hold the lock for `section` at a time and do nothing else.
    ///
    /// # Errors
    ///
    /// The system refuses a thread.
    pub fn start(count: u32, section: Duration) -> anyhow::Result<Self> {
        Self::start_with::<Control>(count, section, Arc::new(|| {}))
    }

    /// As [`start`](Self::start), for the default lock under the load manager `L`; `inside` is called in every section, by the thread that holds the lock.
    ///
    /// # Errors
    ///
    /// The system refuses a thread.
    pub fn start_with<L: LoadManager<Native>>(
        count: u32,
        section: Duration,
        inside: Arc<dyn Fn() + Send + Sync>,
    ) -> anyhow::Result<Self> {
        let mut contenders = Self { stop: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
        let mutex = Arc::new(lock_api::Mutex::<RawLock<Loiter<Native>, L>, u64>::new(0));
        for _ in 0..count {
            let (stop, mutex, inside) = (Arc::clone(&contenders.stop), Arc::clone(&mutex), Arc::clone(&inside));
            let body = move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut entered = mutex.lock();
                    *entered += 1;
                    inside();
                    let end = Instant::now() + section;
                    while Instant::now() < end {}
                }
            };
            contenders.threads.push(thread::Builder::new().spawn(body).context("cannot start a thread")?);
        }
        Ok(contenders)
    }
}

impl Drop for Contenders {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The body has nothing that panics.
            let _ = thread.join();
        }
    }
}
