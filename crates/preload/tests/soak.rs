//! Soaks: servers, a Java virtual machine and a browser under the library, beside a disturber that
//! stops, freezes, confines and debugs them at random. Their clients see no error, and the servers
//! do not grow. `UNCONVOY_SOAK_SECONDS` sets the time of each; `make soak` runs them for hours.

#[path = "subjects/browser.rs"]
mod browser;
#[path = "soak/disturber.rs"]
mod disturber;
#[path = "soak/growth.rs"]
mod growth;
#[path = "subjects/java.rs"]
mod java;
#[path = "subjects/mariadb.rs"]
mod mariadb;
#[path = "subjects/memcached.rs"]
mod memcached;
mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use browser::{Browser, drawn};
use disturber::{Disturber, Means};
use growth::Growth;
use java::{Java, LINES};
use mariadb::{MariaDb, reported};
use memcached::{CONNECTIONS, KEYS, Memcached, drive};
use rustix::process::Signal;
use support::contend::alone;
use support::{LIMIT, Running, installed, preloaded};

/// Sizes that a soak records.
const SIZES: u32 = 40;

fn time() -> Duration {
    let seconds = std::env::var("UNCONVOY_SOAK_SECONDS").ok();
    Duration::from_secs(seconds.map_or(5, |text| text.parse().expect("a number of seconds")))
}

/// Prints the seed of the disturber; the moments still differ between runs.
fn seed() -> u64 {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    seed
}

/// Runs `load` beside a disturber of `group`, and checks that the process `group` does not grow.
fn soak(group: i32, means: &std::sync::Arc<Means>, load: impl FnOnce()) {
    let ended = AtomicBool::new(false);
    let growth = thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut growth = Growth::of(group);
            while !ended.load(Ordering::Relaxed) {
                thread::sleep(time() / SIZES);
                growth.record();
            }
            growth
        });
        let disturber = Disturber::start(group, means, seed());
        // Ends the sampler even if the load fails.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(load));
        drop(disturber);
        ended.store(true, Ordering::Relaxed);
        let growth = sampler.join().expect("the sampler");
        result.unwrap_or_else(|failure| std::panic::resume_unwind(failure));
        growth
    });
    growth.is_flat();
}

#[test]
#[ignore = "make test-all: needs servers"]
fn memcached_beside_disturber_gives_right_answers_and_stays_flat() {
    let _alone = alone();
    let Some(path) = installed("memcached", "memcached") else { return };
    let means = Means::make();
    let server = Memcached::start(&mut preloaded(&path));
    let end = Instant::now() + time();
    soak(server.service.id(), &means, || {
        while Instant::now() < end {
            let answers = drive(&server);
            assert_eq!(answers[0], format!("counter Some(\"{}\")", CONNECTIONS * KEYS));
        }
    });
    server.service.stop(Signal::TERM).success("memcached");
}

#[test]
#[ignore = "make test-all: needs databases"]
fn mariadb_beside_disturber_fails_no_client_and_stays_flat() {
    let _alone = alone();
    let Some(mariadb) = MariaDb::installed() else { return };
    let means = Means::make();
    let server = mariadb.start(|path| preloaded(path), &[]);
    let sysbench = |arguments: &[&str]| mariadb.sysbench(&server.socket, 1000, 8, arguments);
    sysbench(&["prepare"]).finish(LIMIT).success("sysbench prepares");
    soak(server.service.id(), &means, || {
        let seconds = format!("--time={}", time().as_secs());
        let running = sysbench(&["--events=0", &seconds, "run"]);
        let report = running.finish(time() + LIMIT).success("sysbench").text();
        println!("{} transactions", reported(&report, "transactions:").expect("a number"));
        assert_eq!(reported(&report, "reconnects:"), Some(0), "{report}");
    });
    let log = server.service.stop(Signal::TERM).success("mariadbd").stderr;
    assert!(log.contains("mariadbd: Shutdown complete") && !log.contains("[ERROR]"), "{log}");
}

#[test]
#[ignore = "make test-all: needs browsers, a JVM and others"]
fn java_beside_disturber_gives_same_output_and_stays_flat() {
    let _alone = alone();
    let Some(java) = Java::compiled() else { return };
    let means = Means::make();
    let mut command = preloaded(&java.path);
    command.args(["-XX:ParallelGCThreads=4", "-Xms64m", "-XX:+AlwaysPreTouch"]);
    let running = Running::start(java.contention(&mut command).arg(time().as_secs().to_string()));
    let mut finished = None;
    soak(running.id().as_raw_nonzero().get(), &means, || {
        finished = Some(running.finish(time() + LIMIT).success("java"));
    });
    let text = finished.expect("the load ran").text();
    let lines: Vec<&str> = text.lines().collect();
    let (rounds, rest) = lines.as_chunks::<LINES>();
    println!("{} rounds", rounds.len());
    assert!(rest.is_empty() && !rounds.is_empty(), "{text}");
    assert!(rounds.iter().all(|round| *round == rounds[0]), "{text}");
}

/// The browser starts again and again; each must show the page.
#[test]
#[ignore = "make test-all: needs browsers, a JVM and others"]
fn chromium_beside_disturber_shows_page() {
    let _alone = alone();
    let Some(mut browser) = Browser::find(false) else { return };
    browser.limit = LIMIT;
    let means = Means::make();
    let library = browser.library();
    let end = Instant::now() + time();
    let mut pages = 0;
    while Instant::now() < end || pages == 0 {
        let rendered =
            browser.render(&format!("page-{pages}"), Some(&library), |running: &Running| {
                Disturber::start(running.id().as_raw_nonzero().get(), &means, seed())
            });
        let rendered = rendered.expect("no sandbox was asked for");
        assert!(rendered.document.contains(&drawn()) && !rendered.screenshot.is_empty());
        pages += 1;
    }
    println!("{pages} pages");
}
