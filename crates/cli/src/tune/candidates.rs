//! What a program is tried under: configurations for the whole process, and entries for the locks
//! that cost most, on top of the best of them.

use std::ffi::OsStr;
use std::path::Path;

use serde::{Deserialize, Serialize};
use unconvoy::catalogue::{Availability, availability};

use super::costs::{Costs, LockCost};
use super::known::{Algorithm, FOR_LONG, FOR_SHORT, NAMED, Named, Needs};
use crate::compare::configuration::Configuration;
use crate::strategy::Strategy;

/// Index of libc's locks in every list of candidates.
pub const LIBC: usize = 0;
/// Index of unconvoy's default.
pub const DEFAULT: usize = 1;

/// Number of configurations besides libc and the default that are tried if locks cost nearly
/// nothing.
const FEW: usize = 1;

/// Sections of at least this length are long: a sleep and a wake-up cost less.
const LONG_HOLD_NS: u64 = 20_000;

/// Locks with a smaller share of the time waited get no entries.
const SHARE: f64 = 0.1;
/// Number of locks that get entries.
const LOCKS: usize = 3;
/// Number of algorithms tried for each.
const EACH: usize = 3;
/// A lock with this share of the time waited is the process: an entry for it says nothing new.
const NEARLY_ALL: f64 = 0.9;

/// A part of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// The first run, under libc.
    First,
    /// Configurations of the whole process, and what the profile suggests.
    Process,
    /// Entries for single locks.
    Locks,
    /// The best entries for two locks together.
    Combination,
    /// The best against libc and the default.
    Confirmation,
}

/// A way to run the program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// For tables: `libc`, `loiter+park`, `elided for cache_lock`.
    pub name: String,
    /// For sentences, after "from": "eliding `cache_lock`".
    pub remedy: String,
    /// Why it may help.
    pub why: String,
    /// Keys of `[process]` and their values.
    pub process: Vec<(String, String)>,
    /// `[[lock]]` entries, as TOML.
    pub entries: Vec<String>,
    /// Names of the locks that have entries.
    pub locks: Vec<String>,
    /// When it is first tried.
    pub stage: Stage,
}

impl Candidate {
    /// A lock and a load manager for the whole process.
    fn of_process(named: &Named) -> Self {
        let Named { name, keys, why, .. } = *named;
        let all = match name {
            "libc" => "libc's locks".to_string(),
            "default" => "the default lock".to_string(),
            "elided" => "eliding all locks".to_string(),
            _ => format!("`{name}`"),
        };
        let process = keys.iter().map(|(key, value)| (key.to_string(), value.to_string()));
        Candidate {
            name: name.to_string(),
            remedy: all,
            why: why.to_string(),
            process: process.collect(),
            entries: Vec::new(),
            locks: Vec::new(),
            stage: Stage::Process,
        }
    }

    /// The strategy that the profile suggests, in which libc serves the other locks. `None` if the
    /// advice names no lock.
    fn advised(costs: &Costs) -> Option<Self> {
        let (mut entries, mut known) = (Vec::new(), Vec::new());
        let (mut locks, mut remedies) = (Vec::new(), Vec::new());
        for advice in &costs.advice {
            let named =
                advice.choices.iter().filter_map(|(entry, lock)| Some((entry.as_ref()?, lock)));
            for (entry, lock) in named.filter(|(_, lock)| *lock != "elided" || has_transactions()) {
                if known.contains(&entry) {
                    continue;
                }
                known.push(entry);
                entries.push(entry.toml(&advice.problem, &[("lock", lock)]));
                if !locks.contains(&advice.lock) {
                    locks.push(advice.lock.clone());
                    remedies.push(remedy_for(lock, &advice.lock));
                }
            }
        }
        (!entries.is_empty()).then(|| Candidate {
            name: "advice".to_string(),
            remedy: format!("{} beside libc's locks", remedies.join(" and ")),
            why: "what the profile suggests".to_string(),
            process: vec![("lock".to_string(), "libc".to_string())],
            entries,
            locks,
            stage: Stage::Process,
        })
    }

    /// This candidate with other algorithms for one name's locks.
    fn with_entries(&self, lock: &LockCost, algorithm: &Algorithm) -> Self {
        let (name, keys) = (algorithm.name, algorithm.keys);
        let remedy = remedy_for(name, &lock.name);
        let beside = match &*self.name {
            "default" => remedy.clone(),
            _ if !self.entries.is_empty() => format!("{remedy} and {}", self.remedy),
            base => {
                format!("{remedy} beside {}", if base == "libc" { "libc's locks" } else { base })
            }
        };
        let why = format!("{}: {}.", lock.summary(), algorithm.why);
        let mut candidate = self.clone();
        candidate.name = format!("{}; {name} for {}", self.name, lock.name);
        candidate.remedy = beside;
        candidate.entries.extend(lock.entries(&why, keys));
        candidate.locks.push(lock.name.clone());
        candidate.stage = Stage::Locks;
        candidate.why = why;
        candidate
    }

    /// The strategy file's content after its opening comment.
    pub fn toml(&self) -> String {
        let mut text = "version = 1\n".to_string();
        if !self.process.is_empty() {
            text += &format!("\n# {}\n[process]\n", self.process_comment());
            let keys = self.process.iter().map(|(key, value)| format!("{key} = \"{value}\"\n"));
            text.extend(keys);
        }
        self.entries.iter().for_each(|entry| text += &format!("\n{entry}"));
        text
    }

    fn process_comment(&self) -> String {
        let name = self.name.split(';').next().unwrap_or_default();
        let named = NAMED.iter().find(|named| named.name == name);
        match named {
            Some(named) => format!("{name}: {}.", named.why),
            None => "libc serves the locks that no entry names.".to_string(),
        }
    }

    /// What runs the program this way.
    ///
    /// # Errors
    ///
    /// Why the candidate cannot run here, or would not do what its name says.
    pub fn configuration(&self, program: &OsStr) -> Result<Configuration, String> {
        let is_plain = self.entries.is_empty() && ["libc", "default"].contains(&&*self.name);
        let mut configuration = if is_plain {
            Configuration::parse(&self.name)?
        } else {
            let strategy = Strategy::parse(Path::new(&self.name), &self.toml())?;
            Configuration::of_strategy(&self.name, strategy)
        };
        let warnings = configuration.resolve(program).map_err(|refusal| refusal.message)?;
        warnings.into_iter().next().map_or(Ok(configuration), Err)
    }
}

fn remedy_for(algorithm: &str, lock: &str) -> String {
    match algorithm {
        "elided" => format!("eliding `{lock}`"),
        "default" => format!("the default lock for `{lock}`"),
        _ => format!("`{algorithm}` for `{lock}`"),
    }
}

/// Facts that decide what is worth trying.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    pub processors: u32,
    /// The greatest number of threads; `None` if unknown.
    pub threads: Option<u32>,
}

fn has_transactions() -> bool {
    availability("elided") == Availability::Full
}

/// The configurations of the whole process: libc, the default, and up to `most` others, likeliest
/// first.
pub fn of_process(costs: &Costs, facts: Facts, most: usize) -> Vec<Candidate> {
    let is_met = |named: &&Named| match named.needs {
        Needs::Nothing => true,
        Needs::Transactions => has_transactions(),
        Needs::ProcessorPerThread => facts.threads.is_none_or(|count| count <= facts.processors),
        Needs::SeveralProcessors => facts.processors > 1,
    };
    let is_long = costs.locks.first().and_then(|lock| lock.hold_p50_ns) >= Some(LONG_HOLD_NS);
    let (plain, others) = NAMED.split_at(2);
    let mut others: Vec<&Named> = others.iter().filter(is_met).collect();
    let choices = costs.advice.iter().flat_map(|advice| &advice.choices);
    let advised: Vec<&str> =
        choices.filter(|(entry, _)| entry.is_none()).map(|(_, lock)| &**lock).collect();
    // The sort is stable.
    others.sort_by_key(|named| (!advised.contains(&named.name), is_long && !named.is_for_long));
    let most = if costs.is_little() { most.min(FEW) } else { most };
    let plain = plain.iter().map(Candidate::of_process);
    let others = others.into_iter().map(Candidate::of_process);
    plain.chain(Candidate::advised(costs).into_iter().chain(others).take(most)).collect()
}

/// Whether single locks are worth trying.
pub fn has_locks(costs: &Costs) -> bool {
    !of_locks(&Candidate::of_process(&NAMED[DEFAULT]), costs).is_empty()
}

/// Candidates that give single locks another algorithm than `base` does.
pub fn of_locks(base: &Candidate, costs: &Costs) -> Vec<Candidate> {
    if costs.is_little() {
        return Vec::new();
    }
    let is_new = |lock: &&LockCost| lock.has_entries() && !base.locks.contains(&lock.name);
    let locks = costs.locks.iter().filter(|lock| lock.share >= SHARE).filter(is_new);
    let locks: Vec<&LockCost> = locks.take(LOCKS).collect();
    if locks.iter().any(|lock| lock.share >= NEARLY_ALL) {
        return Vec::new();
    }
    let of_lock = |lock: &&LockCost| {
        let is_long = lock.hold_p50_ns >= Some(LONG_HOLD_NS);
        let algorithms = if is_long { &FOR_LONG[..] } else { &FOR_SHORT[..] };
        let is_other = |algorithm: &&Algorithm| {
            let is_like = |keys: &[(&str, &str)]| {
                base.process.iter().map(|(key, value)| (&**key, &**value)).eq(keys.iter().copied())
            };
            let is_base = algorithm.name == base.name || is_like(algorithm.keys);
            let is_possible = algorithm.name != "elided" || has_transactions();
            is_possible && !is_base && (lock.kind == "mutex" || serves_rwlocks(algorithm))
        };
        let wanted = algorithms.iter().filter(is_other).take(EACH);
        wanted.map(|algorithm| base.with_entries(lock, algorithm)).collect::<Vec<_>>()
    };
    locks.iter().flat_map(of_lock).collect()
}

fn serves_rwlocks(algorithm: &Algorithm) -> bool {
    ["libc", "elided", "default", "loiter+park"].contains(&algorithm.name)
}

/// A candidate with the entries of two candidates that have the same base and name different locks.
pub fn combined(first: &Candidate, second: &Candidate) -> Candidate {
    let (_, added) = second.name.rsplit_once("; ").unwrap_or(("", &second.name));
    let (algorithm, lock) = added.split_once(" for ").unwrap_or((added, ""));
    let mut both = first.clone();
    both.name = format!("{}; {added}", first.name);
    both.remedy = format!("{} and {}", remedy_for(algorithm, lock), first.remedy);
    both.locks.extend(second.locks.last().cloned());
    both.stage = Stage::Combination;
    both.why = format!("{} {}", first.why, second.why);
    // Both may have the entries of their base.
    both.entries.extend(second.entries.iter().filter(|it| !first.entries.contains(it)).cloned());
    both
}

#[cfg(test)]
mod tests {
    use super::super::costs::Advised;
    use super::*;
    use crate::advice::entry::Entry;

    fn lock(name: &str, share: f64, hold_ns: u64) -> LockCost {
        let entry = Entry {
            key: "symbol".to_string(),
            name: name.to_string(),
            object: None,
            build_id: None,
            kind: "mutex".to_string(),
        };
        LockCost {
            name: name.to_string(),
            kind: "mutex".to_string(),
            share,
            hold_p50_ns: Some(hold_ns),
            names: vec![entry],
            ..LockCost::default()
        }
    }

    fn costs(waited_ns: u64, locks: Vec<LockCost>) -> Costs {
        Costs { is_known: true, seconds: 1.0, waited_ns, share: 0.3, locks, ..Costs::default() }
    }

    const BUSY: u64 = 600_000_000;
    const TWO: Facts = Facts { processors: 2, threads: Some(8) };

    fn names(candidates: &[Candidate]) -> Vec<&str> {
        candidates.iter().map(|candidate| &*candidate.name).collect()
    }

    #[test]
    fn idle_locks_leave_one_configuration_besides_libc_and_default() {
        let few = of_process(&costs(1_000_000, vec![lock("a", 1.0, 100)]), TWO, 20);
        assert_eq!((few.len(), few[LIBC].name.as_str()), (3, "libc"));
        assert_eq!(few[DEFAULT].name, "default");
        assert!(of_locks(&few[DEFAULT], &costs(1_000_000, vec![lock("a", 0.5, 9)])).is_empty());
    }

    #[test]
    fn configurations_fit_machine_threads_and_sections() {
        let of =
            |facts, hold_ns| of_process(&costs(BUSY, vec![lock("a", 1.0, hold_ns)]), facts, 20);
        let (short, long) = (of(TWO, 100), of(TWO, 50_000));
        assert!(!names(&short).contains(&"loiter+none"));
        assert!(names(&short).contains(&"default+confine"));
        assert_eq!(names(&long)[2..5], ["loiter+park", "futex+none", "futex+park"]);
        let large = of(Facts { processors: 64, threads: Some(64) }, 100);
        assert!(names(&large).contains(&"loiter+none"));
        let single = of(Facts { processors: 1, threads: Some(8) }, 100);
        assert!(!names(&single).contains(&"default+confine"));
        assert_eq!(of_process(&costs(BUSY, Vec::new()), TWO, 4).len(), 6);
    }

    #[test]
    fn every_configuration_is_a_strategy_that_does_what_its_name_says() {
        for candidate in NAMED.iter().map(Candidate::of_process) {
            let text = candidate.toml();
            Strategy::parse(Path::new("s.toml"), &text)
                .unwrap_or_else(|why| panic!("{why}: {text}"));
            let Some((lock, load)) = candidate.name.split_once('+') else { continue };
            let key = |name: &str| {
                let found = candidate.process.iter().find(|(key, _)| key == name);
                found.map(|(_, value)| value.as_str())
            };
            if lock != "default" {
                assert_eq!(key("lock").unwrap_or("loiter"), lock);
                assert_eq!(key("load").unwrap_or("control"), load);
            }
        }
    }

    #[test]
    fn locks_get_entries_by_the_length_of_their_sections() {
        let costs = costs(BUSY, vec![lock("disk", 0.6, 90_000), lock("count", 0.35, 80)]);
        let base = Candidate::of_process(&NAMED[DEFAULT]);
        let all = of_locks(&base, &costs);
        assert_eq!(all[0].name, "default; libc for disk");
        assert_eq!(all[0].remedy, "`libc` for `disk`");
        assert!(all.iter().any(|it| it.locks == ["count"]), "{:?}", names(&all));
        let both = combined(&all[0], all.last().unwrap());
        assert!(both.remedy.ends_with("for `count` and `libc` for `disk`"), "{}", both.remedy);
        for candidate in all.iter().chain([&both]) {
            let text = candidate.toml();
            let strategy = Strategy::parse(Path::new("s.toml"), &text).expect(&text);
            assert_eq!(strategy.entries.len(), candidate.entries.len());
            assert!(text.contains("% of the waiting, held for"), "{text}");
        }
        let libc = Candidate::of_process(&NAMED[LIBC]);
        let over_libc = of_locks(&libc, &costs);
        assert!(over_libc.iter().all(|it| it.name != "libc; libc for disk"));
        assert!(over_libc[0].remedy.ends_with("beside libc's locks"), "{}", over_libc[0].remedy);
    }

    #[test]
    fn advice_is_tried_first_and_its_locks_get_no_other_entries() {
        let mut costs = costs(BUSY, vec![lock("hot", 0.6, 80), lock("warm", 0.35, 80)]);
        costs.advice.push(Advised {
            lock: "hot".to_string(),
            problem: "saturated short sections: held for 80 ns".to_string(),
            paragraphs: Vec::new(),
            choices: vec![(Some(costs.locks[0].names[0].clone()), "default".to_string())],
        });
        let all = of_process(&costs, TWO, 1);
        assert_eq!(names(&all), ["libc", "default", "advice"]);
        assert_eq!(all[2].remedy, "the default lock for `hot` beside libc's locks");
        let text = all[2].toml();
        assert!(text.contains("symbol = \"hot\"\n") && text.contains("lock = \"libc\""), "{text}");
        Strategy::parse(Path::new("s.toml"), &text).expect(&text);
        let more = of_locks(&all[2], &costs);
        assert!(!more.is_empty() && more.iter().all(|it| it.locks == ["hot", "warm"]));
    }

    #[test]
    fn a_lock_with_nearly_all_waiting_gets_no_entry() {
        let base = Candidate::of_process(&NAMED[DEFAULT]);
        let one = costs(BUSY, vec![lock("hot", 0.97, 80), lock("cold", 0.03, 80)]);
        assert!(of_locks(&base, &one).is_empty());
    }
}
