//! The simulated machine's transactions: what conflicts, who wins, what an abort takes back, and what it costs.

mod sections;

use std::cell::{Cell, RefCell};
use std::num::NonZeroU32;
use std::rc::Rc;

use unconvoy_sim::machine::{self, Cause, Refusal, TransactionCounts, Word};
use unconvoy_sim::pair;
use unconvoy_sim::parameters::{Count, Parameters, Policy, Transactions};
use unconvoy_sim::presets;
use unconvoy_sim::simulation::Simulation;

const POLICIES: [Policy; 2] = [Policy::Requester, Policy::Timestamp];

fn lines(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).expect("not 0")
}

/// Cores of one context behind one cache; round numbers; no backoff.
fn plain(policy: Policy, cores: u32) -> Parameters {
    let mut parameters = presets::named("server").expect("a preset");
    let topology = &mut parameters.topology;
    (topology.sockets, topology.caches_per_socket) = (Count::new(1), Count::new(1));
    (topology.cores_per_cache, topology.contexts_per_core) = (Count::new(cores), Count::new(1));
    let memory = &mut parameters.memory;
    (memory.hit_ns, memory.same_cache_ns, memory.memory_ns, memory.rmw_ns) = (1, 20, 80, 5);
    (memory.read_occupancy_ns, memory.clock_ns, memory.shared_core_slowdown) = (10, 0, 0);
    memory.store_buffer = false; // what a store takes is what is measured here
    parameters.transactions = Some(Transactions {
        policy,
        read_lines: lines(1024),
        write_lines: lines(512),
        write_ways: lines(8),
        begin_ns: 10,
        commit_ns: 20,
        abort_ns: 30,
        backoff_first_ns: 0,
        backoff_limit_ns: 0,
    });
    parameters
}

fn with_backoff(mut parameters: Parameters) -> Parameters {
    if let Some(transactions) = &mut parameters.transactions {
        (transactions.backoff_first_ns, transactions.backoff_limit_ns) = (100, 10_000);
    }
    parameters
}

/// When the scenarios begin: all threads run by then.
const START: u64 = 1_000_000;

/// A machine, and threads that run on a context each from [`START`] on.
struct Scenario {
    simulation: Simulation,
    process: usize,
}

impl Scenario {
    fn new(parameters: &Parameters) -> Self {
        let mut simulation = Simulation::new(parameters, 1).expect("memory");
        let process = simulation.process();
        Scenario { simulation, process }
    }

    fn words<const N: usize>(&mut self) -> [Word; N] {
        core::array::from_fn(|_| self.simulation.word())
    }

    /// A thread that does this, so many nanoseconds after the start.
    fn thread(&mut self, after: u64, work: impl FnOnce() + 'static) {
        self.simulation.spawn(self.process, "thread", move || {
            let now = machine::now();
            machine::work((START + after).saturating_sub(now));
            machine::now();
            work();
        });
    }

    /// Until all threads have ended.
    fn finish(&mut self) -> TransactionCounts {
        self.simulation.run(u64::MAX - 1).unwrap_or_else(|hang| panic!("{hang}"));
        self.simulation.transactions()
    }
}

type Times = Rc<RefCell<Vec<u64>>>;

/// Nanoseconds since the start.
fn clock() -> u64 {
    machine::now() - START
}

/// A transaction whose first try does `first`, and whose second does nothing: notes when its tries begin, and when it
/// has ended.
fn once(times: &Times, first: impl Fn()) {
    let tries = Cell::new(0);
    let result = machine::transaction(|| {
        times.borrow_mut().push(clock());
        if tries.replace(tries.get() + 1) == 0 {
            first();
        }
    });
    assert_eq!(result, Ok(()));
    times.borrow_mut().push(clock());
}

/// Thread 0 writes a word at 90 and works on; thread 1 begins at 500 and asks for it at 530. When the tries of each
/// begin and when they have ended, and what that came to.
fn meeting(policy: Policy) -> (Vec<u64>, Vec<u64>, TransactionCounts) {
    let mut scenario = Scenario::new(&plain(policy, 2));
    let [word] = scenario.words();
    let (first, second) = (Times::default(), Times::default());
    let times = first.clone();
    scenario.thread(0, move || {
        once(&times, || {
            word.set(1); // 80, from memory
            machine::work(1_000);
        });
    });
    let times = second.clone();
    scenario.thread(500, move || {
        once(&times, || {
            word.set(2); // 20, from the neighbour
            machine::work(100);
        });
    });
    let counts = scenario.finish();
    let value = if policy == Policy::Requester { 2 } else { 1 };
    assert_eq!(word.get(), value, "{policy:?}");
    (first.take(), second.take(), counts)
}

#[test]
fn the_requester_wins() {
    let (first, second, counts) = meeting(Policy::Requester);
    assert_eq!(first, [10, 530 + 30 + 10, 570 + 20], "undone at 530, back after 30, and begins again");
    assert_eq!(second, [510, 530 + 100 + 20]);
    assert_eq!((counts.commits, counts.conflicts, counts.wasted_ns), (2, 1, 520), "{counts:?}");
}

#[test]
fn the_older_wins() {
    let (first, second, counts) = meeting(Policy::Timestamp);
    assert_eq!(first, [10, 10 + 80 + 1_000 + 20]);
    assert_eq!(second, [510, 530 + 30 + 10, 570 + 20], "asks at 530, and is itself what is undone");
    assert_eq!((counts.commits, counts.conflicts, counts.wasted_ns), (2, 1, 20), "{counts:?}");
}

#[test]
fn the_older_wins_when_it_is_the_one_that_asks() {
    let mut scenario = Scenario::new(&plain(Policy::Timestamp, 2));
    let [word] = scenario.words();
    let (first, second) = (Times::default(), Times::default());
    let times = first.clone();
    scenario.thread(0, move || {
        once(&times, || {
            machine::work(500);
            word.set(1);
        });
    });
    let times = second.clone();
    scenario.thread(100, move || {
        once(&times, || {
            word.set(2); // at 190
            machine::work(1_000);
        });
    });
    scenario.finish();
    assert_eq!(first.take(), [10, 510 + 20 + 20]);
    assert_eq!(second.take(), [110, 530 + 30 + 10, 570 + 20]);
    assert_eq!(word.get(), 1);
}

#[test]
fn a_transaction_keeps_its_age_when_it_is_undone() {
    let mut scenario = Scenario::new(&plain(Policy::Timestamp, 3));
    let [first, second] = scenario.words();
    let tries = Rc::new(Cell::new(0));
    let own = tries.clone();
    scenario.thread(0, move || {
        let result = machine::transaction(|| {
            if own.replace(own.get() + 1) == 0 {
                first.set(1); // until an access outside of transactions undoes it, at 300 and some
                machine::work(1_000);
            }
            machine::work(500);
            second.set(1);
        });
        assert_eq!(result, Ok(()));
    });
    scenario.thread(200, move || {
        let result = machine::transaction(|| {
            second.set(2);
            machine::work(10_000);
        });
        assert_eq!(result, Ok(()));
    });
    scenario.thread(300, move || first.set(3));
    let counts = scenario.finish();
    assert_eq!(tries.get(), 2, "the second try is younger than the other thread's, but the first was older");
    assert_eq!((first.get(), second.get(), counts.conflicts), (3, 2, 2), "{counts:?}");
}

#[test]
fn who_is_in_no_transaction_wins_by_either_policy() {
    for policy in POLICIES {
        // What a transaction does to a word, what the other does, and whether that is a conflict.
        type Deed = fn(Word);
        let (read, write): (Deed, Deed) = (|word| _ = word.get(), |word| word.set(7));
        for (inside, outside, aborts, left) in
            [(read, read, 0, 0), (read, write, 1, 7), (write, read, 1, 0), (write, write, 1, 7)]
        {
            let mut scenario = Scenario::new(&plain(policy, 2));
            let [word] = scenario.words();
            let times = Times::default();
            scenario.thread(0, move || {
                once(&times, || {
                    inside(word);
                    machine::work(1_000);
                });
            });
            let seen = Rc::new(Cell::new(0));
            let note = seen.clone();
            scenario.thread(500, move || {
                outside(word);
                note.set(word.get());
            });
            let counts = scenario.finish();
            assert_eq!((counts.conflicts, counts.commits), (aborts, 1), "{policy:?}");
            assert_eq!((seen.get(), word.get()), (left, left), "{policy:?}: nobody sees what did not commit");
        }
    }
}

#[test]
fn a_waiter_that_polls_undoes_who_releases_its_lock_in_a_transaction() {
    let mut scenario = Scenario::new(&plain(Policy::Requester, 2));
    let lock = scenario.simulation.lock(scenario.process, pair::named("ticket+none").expect("a pair"));
    let [word] = scenario.words();
    scenario.thread(0, move || {
        lock.lock();
        machine::work(1_000);
        let tries = Cell::new(0);
        let result = machine::transaction(|| {
            if tries.replace(tries.get() + 1) == 1 {
                machine::abort_transaction();
            }
            word.set(1);
            lock.unlock();
            machine::work(5_000); // undone by the other's next poll
        });
        assert_eq!(result, Err(Refusal::Aborted(Cause::Explicit)));
        lock.unlock();
    });
    scenario.thread(100, move || {
        lock.lock();
        assert_eq!(word.get(), 0);
        lock.unlock();
    });
    let counts = scenario.finish();
    assert_eq!((counts.conflicts, counts.explicit, counts.commits), (1, 1, 0), "{counts:?}");
}

#[test]
fn an_abort_restores_every_cell_and_drops_what_the_section_owned() {
    let mut scenario = Scenario::new(&plain(Policy::Requester, 2));
    let words: [Word; 20] = scenario.words();
    let owned = Rc::new(());
    let kept = owned.clone();
    scenario.thread(0, move || {
        words.iter().for_each(|word| word.set(5));
        let result: Result<(), Refusal> = machine::transaction(|| {
            let mine = vec![owned.clone(); 100];
            for turn in 0..3 {
                words.iter().for_each(|word| word.set(turn));
            }
            words.iter().for_each(Word::increment);
            assert_eq!(words[0].get(), 3, "it sees its own");
            machine::abort_transaction();
            unreachable!("{}", mine.len());
        });
        assert_eq!(result, Err(Refusal::Aborted(Cause::Explicit)));
        assert!(words.iter().all(|word| word.get() == 5));
        assert_eq!(Rc::strong_count(&owned), 2, "and its own");
        assert!(!machine::in_transaction());
        // As if nothing had been.
        let result = machine::transaction(|| words.iter().for_each(Word::increment));
        assert_eq!(result, Ok(()));
    });
    let counts = scenario.finish();
    assert!(words.iter().all(|word| word.get() == 6));
    assert_eq!((counts.commits, counts.explicit, Rc::strong_count(&kept)), (1, 1, 1));
}

#[test]
fn inner_transactions_are_a_part_of_the_outermost() {
    let mut scenario = Scenario::new(&plain(Policy::Requester, 2));
    let [word] = scenario.words();
    let tries = Rc::new(Cell::new((0, 0)));
    let own = tries.clone();
    scenario.thread(0, move || {
        let result = machine::transaction(|| {
            own.set((own.get().0 + 1, own.get().1));
            let inner = machine::transaction(|| {
                own.set((own.get().0, own.get().1 + 1));
                word.increment();
            });
            assert_eq!(inner, Ok(()));
            assert!(machine::in_transaction());
            if own.get().0 == 1 {
                machine::work(1_000); // undone in here, at 500
            }
        });
        assert_eq!(result, Ok(()));
    });
    scenario.thread(500, move || assert_eq!(word.get(), 0, "the inner one has not taken effect"));
    let counts = scenario.finish();
    assert_eq!((tries.get(), word.get(), counts.commits), ((2, 2), 1, 1));
}

#[test]
fn what_has_no_room_is_not_worth_a_retry() {
    // 64 places for 8 lines each.
    let written = |which: fn(usize) -> bool| {
        let mut scenario = Scenario::new(&plain(Policy::Requester, 1));
        let words: Rc<[Word; 640]> = Rc::new(scenario.words());
        let own = words.clone();
        let result = Rc::new(Cell::new(None));
        let note = result.clone();
        scenario.thread(0, move || {
            let lines =
                || own.iter().enumerate().filter(|(number, _)| which(*number)).for_each(|(_, word)| word.set(1));
            note.set(Some(machine::transaction(lines)));
        });
        let counts = scenario.finish();
        let result = result.take().expect("it has ended");
        assert_eq!(result.is_err(), counts.capacity == 1, "{counts:?}");
        assert_eq!(words.iter().any(|word| word.get() != 0), result.is_ok());
        result
    };
    assert_eq!(written(|number| number < 512), Ok(()));
    assert_eq!(written(|number| number < 513), Err(Refusal::Aborted(Cause::Capacity)));
    assert_eq!(written(|number| number % 64 == 0 && number < 512), Ok(()), "eight of one place");
    assert_eq!(written(|number| number % 64 == 0 && number < 576), Err(Refusal::Aborted(Cause::Capacity)), "nine");
    assert!(!Cause::Capacity.abort().may_succeed_on_retry && Cause::Conflict.abort().may_succeed_on_retry);

    let mut parameters = plain(Policy::Requester, 1);
    parameters.transactions.as_mut().expect("it has some").read_lines = lines(10);
    for (count, expected) in [(10, Ok(())), (11, Err(Refusal::Aborted(Cause::Capacity)))] {
        let mut scenario = Scenario::new(&parameters);
        let words: [Word; 11] = scenario.words();
        scenario.thread(0, move || {
            let result = machine::transaction(|| words[..count].iter().for_each(|word| _ = word.get()));
            assert_eq!(result, expected);
        });
        scenario.finish();
    }
}

#[test]
fn a_call_ends_a_transaction_and_a_retry_is_no_use() {
    type Call = fn(Word);
    let calls: [Call; 3] = [|_| machine::sleep(10), |_| machine::away(10), |word| word.wake_one()];
    for call in calls {
        let mut scenario = Scenario::new(&plain(Policy::Requester, 1));
        let [word] = scenario.words();
        scenario.thread(0, move || {
            let result = machine::transaction(|| {
                word.set(1);
                call(word);
            });
            assert_eq!(result, Err(Refusal::Aborted(Cause::Call)));
            assert_eq!(word.get(), 0);
            call(word); // outside of one it is a call
        });
        assert_eq!(scenario.finish().calls, 1);
    }
}

#[test]
fn a_preempted_transaction_is_undone_and_tried_again() {
    let parameters = plain(Policy::Requester, 1);
    let mut scenario = Scenario::new(&parameters);
    let [word] = scenario.words();
    let tries = Rc::new(Cell::new(0));
    let own = tries.clone();
    scenario.thread(0, move || {
        let result = machine::transaction(|| {
            word.increment();
            if own.replace(own.get() + 1) == 0 {
                machine::work(30_000_000); // ten slices
            }
        });
        assert_eq!(result, Ok(()));
    });
    let seen = Rc::new(Cell::new(1));
    let note = seen.clone();
    scenario.thread(0, move || {
        machine::work(1_000_000);
        note.set(word.get());
        (0..10).for_each(|_| machine::work(1_000_000));
    });
    let counts = scenario.finish();
    assert_eq!((tries.get(), counts.preempted, counts.conflicts, counts.commits), (2, 1, 0, 1), "{counts:?}");
    assert_eq!((seen.get(), word.get()), (0, 1));
}

#[test]
fn backoff_ends_a_livelock() {
    let commits = |parameters: &Parameters| {
        let mut scenario = Scenario::new(parameters);
        let [word] = scenario.words();
        for _ in 0..2 {
            scenario.thread(0, move || {
                for _ in 0..20 {
                    let section = || {
                        word.increment();
                        machine::work(2_000);
                    };
                    assert_eq!(machine::transaction(section), Ok(()));
                }
            });
        }
        scenario.simulation.run(START + 1_000_000).unwrap_or_else(|hang| panic!("{hang}"));
        scenario.simulation.transactions()
    };
    let without = commits(&plain(Policy::Requester, 2));
    assert!(without.commits == 0 && without.conflicts > 5_000, "each undoes the other: {without:?}");
    let with = commits(&with_backoff(plain(Policy::Requester, 2)));
    assert!(with.commits == 40 && with.conflicts < 400, "{with:?}");
    let older = commits(&plain(Policy::Timestamp, 2));
    assert_eq!(older.commits, 40, "who is older gets through at once: {older:?}");
}
