//! Threads of this process that repeat a function until dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use unconvoy::contention::loiter::Loiter;
use unconvoy::load::LoadManager;
use unconvoy::load::control::Control;
use unconvoy::primitive::Native;
use unconvoy::raw::RawLock;

use crate::messages;

/// Running threads, ended when dropped.
pub struct Threads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Starts `count` threads, each of which repeats its own `turn`. A turn may park.
    ///
    /// # Errors
    ///
    /// A thread cannot be created.
    pub fn start<T: FnMut() + Send + 'static>(
        count: u32,
        stack: Option<usize>,
        turn: impl Fn() -> T,
    ) -> anyhow::Result<Self> {
        let mut started = Self { stop: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
        for _ in 0..count {
            let (stop, mut turn) = (Arc::clone(&started.stop), turn());
            let body = move || {
                while !stop.load(Ordering::Relaxed) {
                    turn();
                }
            };
            let builder = stack
                .map_or_else(thread::Builder::new, |size| thread::Builder::new().stack_size(size));
            started.threads.push(builder.spawn(body).context(messages::cannot_start_thread())?);
        }
        Ok(started)
    }

    /// Starts threads that hold one lock for `section` at a time and do nothing else.
    ///
    /// # Errors
    ///
    /// A thread cannot be created.
    pub fn contend(count: u32, section: Duration) -> anyhow::Result<Self> {
        Self::contend_under::<Control>(count, section, Arc::new(|| {}))
    }

    /// As [`contend`](Self::contend), for the default lock under load manager `L`. The lock's
    /// holder calls `inside` in every section.
    ///
    /// # Errors
    ///
    /// A thread cannot be created.
    pub fn contend_under<L: LoadManager>(
        count: u32,
        section: Duration,
        inside: Arc<dyn Fn() + Send + Sync>,
    ) -> anyhow::Result<Self> {
        let mutex = Arc::new(lock_api::Mutex::<RawLock<Loiter<Native>, L>, u64>::new(0));
        Self::start(count, None, || {
            let (mutex, inside) = (Arc::clone(&mutex), Arc::clone(&inside));
            move || {
                let mut entered = mutex.lock();
                *entered += 1;
                inside();
                let end = Instant::now() + section;
                while Instant::now() < end {}
            }
        })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // Turns do not panic.
            let _ = thread.join();
        }
    }
}
