//! The pairs of a lock and a load manager that the C tests run under.

use std::io::Write;
use std::sync::Once;
use std::time::{SystemTime, UNIX_EPOCH};

use unconvoy_locks::catalogue::{Availability, CONTENTION, Entry, LOAD, availability};

/// The names of a lock and of a load manager.
pub type Pair = (&'static str, &'static str);

const DEFAULT: Pair = ("loiter", "control");

/// Number of sampled pairs besides the default; each takes the conformance tests about seven
/// seconds.
const SAMPLED: usize = 5;

/// The pairs that `UNCONVOY_SUITE` asks for: `all` that this machine can run, or a list such as
/// `mcs+park,mcs+none`. If unset: the default pair and a sample of the others, drawn with
/// `UNCONVOY_SUITE_SEED` or, without a seed, with the time.
pub fn pairs() -> Vec<Pair> {
    let runnable = runnable();
    match std::env::var("UNCONVOY_SUITE") {
        Ok(suite) if suite == "all" => runnable,
        Ok(suite) => {
            let pair = |pair: &str| {
                let known = all().find(|(lock, load)| pair == format!("{lock}+{load}"));
                known.unwrap_or_else(|| panic!("UNCONVOY_SUITE: no pair {pair}"))
            };
            let listed: Vec<Pair> = suite.split(',').map(pair).collect();
            runnable.into_iter().filter(|pair| listed.contains(pair)).collect()
        }
        Err(_) => sample(runnable),
    }
}

fn sample(mut pairs: Vec<Pair>) -> Vec<Pair> {
    let seed = match std::env::var("UNCONVOY_SUITE_SEED") {
        Ok(seed) => seed.parse().expect("UNCONVOY_SUITE_SEED is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
    };
    let default = pairs.swap_remove(
        pairs.iter().position(|pair| *pair == DEFAULT).expect("the default pair runs everywhere"),
    );
    let mut sampled = fastrand::Rng::with_seed(seed).choose_multiple(pairs, SAMPLED);
    sampled.insert(0, default);
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        let names: Vec<String> =
            sampled.iter().map(|(lock, load)| format!("{lock}+{load}")).collect();
        // Written directly to standard error: the test harness shows captured output of failed
        // tests only.
        let _ = writeln!(
            std::io::stderr(),
            "pairs: {} (UNCONVOY_SUITE_SEED={seed} draws the same, UNCONVOY_SUITE=all runs all)",
            names.join(", ")
        );
    });
    sampled
}

fn all() -> impl Iterator<Item = Pair> {
    CONTENTION.iter().flat_map(|lock| LOAD.iter().map(|load| (lock.name, load.name)))
}

/// Every pair that this machine can run, in the catalogue's order.
fn runnable() -> Vec<Pair> {
    let can_be_run = |lock: &&Entry| match availability(lock.name) {
        Availability::Refused(reason) => {
            println!("skipped: {}: {reason}", lock.name);
            false
        }
        _ => true,
    };
    let locks = CONTENTION.iter().filter(can_be_run);
    locks.flat_map(|lock| LOAD.iter().map(|load| (lock.name, load.name))).collect()
}
