//! Reader-writer locks on the simulated machine.

use std::cell::Cell;
use std::rc::Rc;

use unconvoy::contention::give_way::{GIVE_WAY_NS, LATE_AFTER_NS};
use unconvoy::contention::rw::Share;
use unconvoy_sim::machine::{self, Activity};
use unconvoy_sim::outcome::{Point, Stop, simulate};
use unconvoy_sim::pair;
use unconvoy_sim::parameters::{Count, Parameters};
use unconvoy_sim::simulation::Simulation;
use unconvoy_sim::{presets, workload};

/// The default lock with its bias, its word alone with sleeping and with polling waiters, and
/// libc's lock.
const LOCKS: [&str; 4] = ["default", "ttas+park", "ttas+none", "libc"];

fn server(name: &str) -> Parameters {
    presets::named(name).expect("a preset")
}

/// Runs 12 threads on `cores` cores, each with 400 sections, of which every `one_in`th is a
/// writer's. Returns the largest number of readers inside at one time.
fn contend(lock: &str, cores: u32, one_in: u32) -> u32 {
    let mut machine = server("server-64");
    machine.topology.cores_per_cache = Count::new(cores);
    machine.topology.contexts_per_core = Count::new(1);
    let mut simulation = Simulation::new(&machine, 1).expect("memory");
    let process = simulation.process();
    let shared = simulation.shared_lock(process, pair::named(lock).expect("a lock"));
    let [readers, most, done] = [0, 0, 0].map(|zero: u32| Rc::new(Cell::new(zero)));
    let is_written = Rc::new(Cell::new(false));
    for thread in 0..12 {
        let (readers, most, done) = (readers.clone(), most.clone(), done.clone());
        let is_written = is_written.clone();
        simulation.spawn(process, format!("thread {thread}"), move || {
            machine::set_activity(Activity::Work);
            for section in 0..400 {
                if (section + thread) % one_in == 0 {
                    shared.section(Share::Write, || {
                        assert!(!is_written.replace(true), "two writers");
                        assert_eq!(readers.get(), 0, "a writer beside readers");
                        machine::work(200);
                        machine::now(); // A point of preemption.
                        assert_eq!(readers.get(), 0, "a writer beside readers");
                        is_written.set(false);
                    });
                } else {
                    shared.section(Share::Read, || {
                        assert!(!is_written.get(), "a reader beside a writer");
                        readers.set(readers.get() + 1);
                        most.set(most.get().max(readers.get()));
                        machine::work(200);
                        machine::now();
                        assert!(!is_written.get(), "a reader beside a writer");
                        readers.set(readers.get() - 1);
                    });
                }
                machine::work(300);
                done.set(done.get() + 1);
            }
        });
    }
    simulation.run(20_000_000_000).unwrap_or_else(|hang| panic!("{lock}: {hang}"));
    assert_eq!(done.get(), 12 * 400, "{lock} is not finished:\n{}", simulation.threads());
    most.get()
}

#[test]
fn writer_excludes_all_others_and_every_thread_ends() {
    for lock in LOCKS {
        // On 4 cores, threads are preempted while they hold the lock or wait for it.
        for (cores, one_in) in [(4, 2), (4, 100), (12, 20)] {
            assert!(contend(lock, cores, one_in) > 1, "{lock}: readers do not share");
        }
    }
}

/// The longest wait, in ns, of `writers` writers beside seven readers whose sections overlap.
fn longest_wait_of_writer(lock: &str, writers: u32) -> u64 {
    let mut machine = server("server-64");
    machine.topology.cores_per_cache = Count::new(12);
    machine.topology.contexts_per_core = Count::new(1);
    let mut simulation = Simulation::new(&machine, 1).expect("memory");
    let process = simulation.process();
    let shared = simulation.shared_lock(process, pair::named(lock).expect("a lock"));
    let (longest, left) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(writers)));
    for reader in 0..7 {
        let left = left.clone();
        simulation.spawn(process, format!("reader {reader}"), move || {
            machine::set_activity(Activity::Work);
            while left.get() != 0 {
                shared.section(Share::Read, || machine::work(2_000));
            }
        });
    }
    for writer in 0..u64::from(writers) {
        let (seen, left) = (longest.clone(), left.clone());
        simulation.spawn(process, format!("writer {writer}"), move || {
            machine::set_activity(Activity::Work);
            for _ in 0..40 {
                let begin = machine::now();
                shared.section(Share::Write, || {
                    seen.set(seen.get().max(machine::now() - begin));
                    machine::work(2_000);
                });
                machine::work(50_000 + 37_000 * writer);
            }
            left.set(left.get() - 1);
        });
    }
    simulation.run(20_000_000_000).unwrap_or_else(|hang| panic!("{lock}: {hang}"));
    assert!(left.get() == 0, "{lock} is not finished:\n{}", simulation.threads());
    longest.get()
}

/// The bound of `give_way`, with the readers' last sections and the writer's last delay.
#[test]
fn wait_of_a_writer_beside_overlapping_readers_is_bounded() {
    for lock in ["default", "ttas+park", "ttas+none"] {
        for writers in 1..=3 {
            let longest = longest_wait_of_writer(lock, writers);
            println!("{lock}, {writers} writers: {longest} ns");
            let before_it = u64::from(writers - 1) * 4_000; // their sections and releases
            let bound = LATE_AFTER_NS + GIVE_WAY_NS + before_it;
            assert!(longest <= bound, "{lock}, {writers} writers: {longest} ns");
        }
    }
}

/// Operations per second of 64 threads on 64 contexts.
fn rate(lock: &str, workload: &str, seconds: f64) -> f64 {
    let point = Point {
        machine: server("server-64"),
        workload: workload::named(workload).expect("a workload"),
        lock: lock.to_string(),
        threads: 64,
        seconds,
        seed: 1,
        warm_up: None,
        interval_ns: None,
    };
    simulate(&point, &Stop::new(false)).unwrap_or_else(|error| panic!("{lock}: {error}")).per_s
}

#[test]
fn biased_readers_scale_to_64_contexts() {
    let [ours, word, libc] =
        ["default", "ttas+control", "libc"].map(|lock| rate(lock, "rwlock", 0.000_5));
    assert!(ours > 40.0 * libc && ours > 40.0 * word, "{ours:.3e}, {word:.3e}, {libc:.3e}");
}

#[test]
fn rare_changes_leave_libcs_rate() {
    let [ours, libc] = ["default", "libc"].map(|lock| rate(lock, "rwlock-10000", 0.005));
    assert!(ours > libc, "{ours:.3e}, {libc:.3e}");
}

#[test]
fn lock_without_a_shared_variant_is_rejected() {
    let point = Point {
        machine: server("server-64"),
        workload: workload::named("rwlock").expect("a workload"),
        lock: "solaris".to_string(),
        threads: 2,
        seconds: 0.001,
        seed: 1,
        warm_up: None,
        interval_ns: None,
    };
    let error = simulate(&point, &Stop::new(false)).expect_err("refused").to_string();
    assert!(error.starts_with("solaris has no reader-writer lock"), "{error}");
}

/// Writers on two cores that take the lock again at once, with sections of 2 ms, for four seconds:
/// each thread's number of sections, and the processor time of their waits by section, in ns.
fn write_for_long(lock: &str, writers: u32) -> (Vec<u64>, u64) {
    let mut machine = server("server-64");
    machine.topology.cores_per_cache = Count::new(2);
    machine.topology.contexts_per_core = Count::new(1);
    let mut simulation = Simulation::new(&machine, 1).expect("memory");
    let process = simulation.process();
    let shared = simulation.shared_lock(process, pair::named(lock).expect("a lock"));
    let sections: Vec<_> = (0..writers).map(|_| Rc::new(Cell::new(0))).collect();
    let threads: Vec<u32> = (sections.iter().enumerate())
        .map(|(index, sections)| {
            let sections = sections.clone();
            simulation.spawn(process, format!("writer {index}"), move || {
                machine::set_activity(Activity::Work);
                while machine::now() < 4_000_000_000 {
                    shared.section(Share::Write, || machine::work(2_000_000));
                    sections.set(sections.get() + 1);
                }
            })
        })
        .collect();
    simulation.run(10_000_000_000).unwrap_or_else(|hang| panic!("{lock}: {hang}"));
    let sections: Vec<u64> = sections.iter().map(|sections| sections.get()).collect();
    let splits = threads.iter().map(|&thread| simulation.split(thread));
    let waited: u64 = splits.map(|it| it.spinning_ns + it.inverted_ns).sum();
    let all = sections.iter().sum::<u64>();
    (sections, waited / all)
}

/// The longest wait, in ns, of two readers beside a writer that takes the lock again at once, with
/// sections of `section_ns`.
fn longest_wait_of_reader(lock: &str, section_ns: u64) -> u64 {
    let mut machine = server("server-64");
    machine.topology.cores_per_cache = Count::new(4);
    machine.topology.contexts_per_core = Count::new(1);
    let mut simulation = Simulation::new(&machine, 1).expect("memory");
    let process = simulation.process();
    let shared = simulation.shared_lock(process, pair::named(lock).expect("a lock"));
    let (longest, left) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(2)));
    for reader in 0..2 {
        let (seen, left) = (longest.clone(), left.clone());
        simulation.spawn(process, format!("reader {reader}"), move || {
            machine::set_activity(Activity::Work);
            for _ in 0..20 {
                let begin = machine::now();
                shared.section(Share::Read, || seen.set(seen.get().max(machine::now() - begin)));
                machine::work(300_000);
            }
            left.set(left.get() - 1);
        });
    }
    let others = left.clone();
    simulation.spawn(process, "writer", move || {
        machine::set_activity(Activity::Work);
        while others.get() != 0 {
            shared.section(Share::Write, || machine::work(section_ns));
        }
    });
    simulation.run(20_000_000_000).unwrap_or_else(|hang| panic!("{lock}: {hang}"));
    assert!(left.get() == 0, "{lock} is not finished:\n{}", simulation.threads());
    longest.get()
}

/// A reader that parks before each release, and wakes only after the writer has the lock again.
#[test]
fn reader_enters_beside_a_writer_that_takes_the_lock_again_at_once() {
    for section_ns in [200_000, 2_000_000] {
        let longest = longest_wait_of_reader("default", section_ns);
        println!("sections of {section_ns} ns: {longest} ns");
        assert!(longest <= 2 * LATE_AFTER_NS + 3 * section_ns, "{section_ns}: {longest} ns");
    }
}

#[test]
fn writers_with_long_sections_take_turns_and_wait_off_the_processor() {
    for (writers, longest_polls) in [(2, 100_000), (8, 400_000)] {
        let (sections, waited) = write_for_long("default", writers);
        println!("{writers} writers: {sections:?} sections, {waited} ns of waiting by section");
        let [least, most] = [sections.iter().min(), sections.iter().max()];
        assert!(least > Some(&0) && least.map(|it| 2 * it) > most.copied(), "{sections:?}");
        assert!(waited < longest_polls, "{writers} writers: {waited} ns by section");
    }
}
