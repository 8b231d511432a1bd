//! Locks that keep their speed when threads outnumber processors.
//!
//! *Contention* and *load* are different problems:
//!
//! - A [contention manager](contention) decides, within nanoseconds, which of the threads that want
//!   one lock acquires it next. It makes no system calls, except in locks that are included for
//!   comparison ([`catalogue::Class`]).
//! - A [load manager](load) decides, within milliseconds, which waiting threads should leave the
//!   processor. It knows nothing of queues.
//!
//! The two meet at one question, asked once per turn of a waiter's loop: *keep spinning, or leave?*
//! Every pair of a contention manager and a load manager is a lock.
//!
//! The default pair is [`Mutex`]: a lock word open to barging with a time-published queue behind it
//! ([`contention::loiter`]), under load control ([`load::control`]; Johnson, Stoica, Ailamaki and
//! Mowry, *Decoupling Contention Management from Scheduling*, ASPLOS 2010).
//!
//! The first long wait starts the controller thread, which exits when long waits cease; nothing
//! runs without contention.
//!
//! ```
//! let hits = unconvoy::Mutex::new(0);
//! std::thread::scope(|scope| {
//!     for _ in 0..8 {
//!         scope.spawn(|| *hits.lock() += 1);
//!     }
//! });
//! assert_eq!(hits.into_inner(), 8);
//! ```
//!
//! # Features
//!
//! | feature | default | adds |
//! | --- | --- | --- |
//! | `lock_api` | yes | [`Mutex`], [`RwLock`] and the types in [`raw`], for Rust |
//! | `ablation` | no | the variable `UNCONVOY_RULES`, for experiments with load control |
//! | `capi` | no | the functions of `include/unconvoy.h`, for C and C++ |
//!
//! `cargo rustc --release --features capi --crate-type staticlib` builds the library for C.
//!
//! # Requirements
//!
//! Linux, and Rust 1.95 or later. A version that needs a later Rust is a new minor version.
//!
//! # Stability
//!
//! The items on these pages follow semantic versioning. The modules that these pages omit serve
//! unconvoy's other programs, and may change in every version.

/// The example of a contention manager or of a load manager: a mutex of that manager and another.
macro_rules! example_of_pair {
    ($contention:literal, $load:literal) => {
        concat!(
            "```\n",
            "use unconvoy::primitive::Native;\n",
            "use unconvoy::raw::RawLock;\n",
            "use unconvoy::{contention, load};\n\n",
            "type Pair = RawLock<contention::",
            $contention,
            "<Native>, load::",
            $load,
            ">;\n\n",
            "static HITS: lock_api::Mutex<Pair, u64> = lock_api::Mutex::new(0);\n\n",
            "std::thread::scope(|scope| {\n",
            "    for _ in 0..4 {\n",
            "        scope.spawn(|| *HITS.lock() += 1);\n",
            "    }\n",
            "});\n",
            "assert_eq!(*HITS.lock(), 4);\n",
            "```\n",
        )
    };
}

#[cfg(all(feature = "capi", not(loom)))]
pub mod capi;
pub mod catalogue;
pub mod contention;
pub mod load;
#[doc(hidden)]
pub mod lock;
#[doc(hidden)]
pub mod parking;
pub mod primitive;
#[doc(hidden)]
pub mod queue;
#[cfg(all(feature = "lock_api", not(loom)))]
pub mod raw;
pub mod runtime;

#[cfg(not(loom))]
pub use runtime::{checkpoint, confine, fork::after_fork, without_controller};

#[cfg(all(feature = "lock_api", not(loom)))]
pub use raw::{Mutex, MutexGuard, RwLock};

/// The examples of the package's page.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
