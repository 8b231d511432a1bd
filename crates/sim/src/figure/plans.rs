//! The figures, and what is simulated for each.

use super::{Figure, Shown, Size, bounds, claims, comparison, syncchar, taco};
use crate::experiment::{Bump, Task};
use crate::grid::Cell;
use crate::outcome::Point;
use crate::parameters::{Count, Parameters};
use crate::presets;
use crate::workload::{self, Workload};

/// The papers' spin-then-block mutex.
pub(super) const BLOCKING: &str = "solaris";
/// Their spin lock.
pub(super) const SPINNING: &str = "tpmcs+none";
/// Load control over it.
pub(super) const CONTROLLED: &str = "tpmcs+control";
/// Load-triggered backoff over it.
pub(super) const BACKOFF: &str = "tpmcs+backoff";

pub(super) const FIGURES: &[Figure] = &[
    Figure {
        name: "asplos-1",
        title: "Spinning and blocking as threads are added (simulated)",
        remark: "The paper's: Johnson, Stoica, Ailamaki, Mowry, ASPLOS 2010, section 1, Figure 1; TM-1 on a Sun Niagara II of 64 contexts. Blocking performs poorly beyond 32 threads, because it overwhelms the scheduler; spinning scales to the machine's 64 contexts, and beyond that its performance drops off drastically, because lock holders are preempted.",
        plan: asplos_1,
        claims: claims::asplos_1,
        across: "threads",
        shown: Shown::Throughput,
    },
    Figure {
        name: "asplos-3",
        title: "Where processor time goes under a spin lock (simulated)",
        remark: "The paper's: ASPLOS 2010, section 2, Figure 3; TM-1 with TP-MCS on 64 contexts. At the peak less than 10 % of processor time is spent spinning on contended locks. As soon as utilisation passes 100 % priority inversions dominate quickly, and waste up to 85 % of processor time.",
        plan: asplos_3,
        claims: claims::asplos_3,
        across: "threads",
        shown: Shown::Contexts,
    },
    Figure {
        name: "asplos-4",
        title: "Throughput and context switches of a blocking mutex (simulated)",
        remark: "The paper's: ASPLOS 2010, section 2.2, Figure 4; TM-1 with the Solaris mutex on 64 contexts. Below some 37 threads nobody blocks: there is one context switch per transaction, for the log. Beyond, more and more threads run out of patience and block, until every hand-over takes a context switch, and throughput falls steadily.",
        plan: asplos_4,
        claims: claims::asplos_4,
        across: "threads",
        shown: Shown::Switches,
    },
    Figure {
        name: "asplos-5",
        title: "Running threads at a fixed target (simulated)",
        remark: "The paper's: ASPLOS 2010, section 2.3, Figure 5; TM-1 with 63 clients on 64 contexts, the target set to 32 by hand. Under load-triggered backoff the number of running threads swings far to both sides of the target and wanders for long stretches below it, because a sleeper comes back only when its time is over, and many come back at the same clock tick.",
        plan: asplos_5,
        claims: claims::asplos_5,
        across: "s",
        shown: Shown::Counts,
    },
    Figure {
        name: "asplos-8",
        title: "Bump test: threads that are awake after changes of the sleep target (simulated)",
        remark: "The paper's: ASPLOS 2010, section 5.1, Figure 8; a microbenchmark with one lock on 64 contexts. The number of active threads follows each change at once: the first thread reacts within 30 us, and the new level is reached within 200 us.",
        plan: asplos_8,
        claims: claims::asplos_8,
        across: "us after the change",
        shown: Shown::Reactions,
    },
    Figure {
        name: "asplos-9",
        title: "Throughput and contention, below and above full load (simulated)",
        remark: "The paper's: ASPLOS 2010, section 5.2, Figure 9; threads that take one lock with a fixed delay between requests, on 64 contexts: 61 threads (95 % load), and 96 (150 %) without and with load control. At 150 % without load control throughput is far below that of 95 % under contention, and comes closer as contention falls; with load control most of the loss is gone over a wide range, and least at the highest contention (12 us).",
        plan: asplos_9,
        claims: claims::asplos_9,
        across: "us between two requests",
        shown: Shown::Throughput,
    },
    Figure {
        name: "asplos-10",
        title: "Throughput and the controller's interval (simulated)",
        remark: "The paper's: ASPLOS 2010, section 5.3, Figure 10; TM-1 on 64 contexts with 63, 72 and 96 threads (98, 110 and 150 % load). Very short intervals cost all three, most at the highest load, because Solaris walks all threads for each reading. Between 3 and 10 ms the overloaded lines are at their best. Beyond 10 ms decisions are made on stale readings, and throughput falls. The authors chose 7 ms.",
        plan: asplos_10,
        claims: claims::asplos_10,
        across: "ms between two readings",
        shown: Shown::Throughput,
    },
    Figure {
        name: "asplos-11",
        title: "Throughput of applications as threads are added (simulated)",
        remark: "The paper's: ASPLOS 2010, section 5.4, Figure 11; Raytrace, TM-1 and TPC-C on 64 contexts, up to 128 threads. In Raytrace and TM-1, TP-MCS is well ahead of pthread mutexes up to 64 threads, and beyond that loses more than 60 % of its peak; with load control 85 to 92 % of the peak are kept at the highest load. In TPC-C threads wait for database locks more than for mutexes: pthread mutexes do as well as load control, and TP-MCS holds to about 150 % load.",
        plan: asplos_11,
        claims: claims::asplos_11,
        across: "threads",
        shown: Shown::Throughput,
    },
    Figure {
        name: "asplos-12",
        title: "Two processes that compete for the processors (simulated)",
        remark: "The paper's: ASPLOS 2010, section 5.5, Figure 12; two TM-1 processes on 64 contexts, self with 64 threads under load control, other with more and more threads. If both use load control they share the machine, and lose 10 to 15 % together. If other does not, and has many threads, self keeps about 35 % of its peak and other does badly, because its holders are preempted.",
        plan: asplos_12,
        claims: claims::asplos_12,
        across: "threads of other",
        shown: Shown::Shares,
    },
    Figure {
        name: "sizes",
        title: "Managers on servers of 64 to 1024 contexts (simulated)",
        remark: "Not from a paper. Servers of 1 to 16 sockets of 64 contexts, four threads for each context; one lock for each 16 contexts, sections of 500 ns, 20 us between them.",
        plan: sizes,
        claims: claims::sizes,
        across: "contexts",
        shown: Shown::Throughput,
    },
    Figure {
        name: "damon-1",
        title: "Lock implementations on 16 contexts (simulated)",
        remark: "The paper's: Johnson, Athanassoulis, Stoica, Ailamaki, DaMoN 2009, section 3.2, Figure 1; TM-1 on a Sun Niagara II restricted to 16 contexts. Up to 100 % load all scale linearly and alike. Beyond, the pthread mutex is the best by far; schedctl comes next, TP-MCS falls rapidly, yielding makes it worse, and MCS collapses at once.",
        plan: damon_1,
        claims: claims::damon_1,
        across: "threads",
        shown: Shown::Throughput,
    },
    Figure {
        name: "damon-2",
        title: "Lock implementations on 64 contexts (simulated)",
        remark: "The paper's: DaMoN 2009, section 3.3, Figure 2; as Figure 1 with all 64 contexts. mcs, tpmcs and yield behave as before. The pthread mutex stops scaling at about 39 threads, and schedctl becomes nearly useless.",
        plan: damon_2,
        claims: claims::damon_2,
        across: "threads",
        shown: Shown::Throughput,
    },
    Figure {
        name: "damon-3",
        title: "Load-triggered backoff against the best of the others (simulated)",
        remark: "The paper's: DaMoN 2009, section 3.4, Figure 3. On 64 contexts backoff tracks the best of the others: tpmcs while there is no overload, pthread beyond. On 16 contexts it cannot match the pthread mutex beyond 100 % load.",
        plan: damon_3,
        claims: claims::damon_3,
        across: "threads",
        shown: Shown::Throughput,
    },
    Figure {
        name: "damon-4",
        title: "Where the contexts' time goes: spinning, backoff, blocking (simulated)",
        remark: "The paper's: DaMoN 2009, section 4, Figure 4; TM-1 on 64 contexts. tpmcs saturates the machine with spinning, a growing part of which is due to preempted holders. The pthread mutex never uses the whole machine: about 60 % between 31 and 47 threads, and less beyond. Backoff has both wasted spinning, though much less than tpmcs, and low utilisation.",
        plan: damon_4,
        claims: claims::damon_4,
        across: "threads",
        shown: Shown::Contexts,
    },
    Figure {
        name: "syncchar-5",
        title: "Execution time with transactions, projected and simulated",
        remark: "The paper's: Porter, Hofmann, Witchel, Predicting and Tuning the Performance of Multicore Systems, 2008, section 5, Figure 5; Prob, RW and RB-Tree with 32 threads on 8, 16 and 32 processors of 1 GHz. The mean error is 10 %. Predictions are slightly conservative; Prob's at 32 processors is 31 % worse than measured, because transactions take no cache misses on the lock.",
        plan: syncchar::plan,
        claims: syncchar::claims_5,
        across: "processors",
        shown: Shown::Times,
    },
    Figure {
        name: "syncchar-6",
        title: "Projected speed-up by data independence and by conflict density (simulated)",
        remark: "The paper's: Porter, Hofmann, Witchel, 2008, section 5, Figure 6; the same programs. All of Prob's projected speed-up is data independence; every section of RW conflicts at least once, yet its speed-up is substantial; RB-Tree has both.",
        plan: syncchar::plan,
        claims: syncchar::claims_6,
        across: "processors",
        shown: Shown::SpeedUps,
    },
    Figure {
        name: "taco-1",
        title: "Throughput and lock-waiting time of parallel postmark (simulated)",
        remark: "The paper's: Cui, Wang, Chen, Shi, ACM TACO 9(4), 2013, sections 1 and 2, Figure 1; postmark with a thread per core on 32 AMD cores, ticket spin locks. The waiting share grows slowly from 3.81 % to 21.77 % up to 16 cores; beyond, throughput collapses, and the share grows to 92.24 %.",
        plan: taco::plan_1,
        claims: taco::claims_1,
        across: "cores",
        shown: Shown::Collapse,
    },
    Figure {
        name: "taco-3",
        title: "Throughput of the lock-contention-aware scheduler (simulated)",
        remark: "The paper's: TACO 2013, sections 4.5, 4.9.2 and 4.10, Figures 3 and 10. Where the default collapses (mmapbench, sockbench, postmark, grep) the scheduler captures the start of the collapse and sustains the maximum; kernbench does not collapse, and has the same with both; find, whose processes are short-lived, decreases slightly beyond 15 cores.",
        plan: taco::plan_3,
        claims: taco::claims_3,
        across: "cores",
        shown: Shown::Throughput,
    },
    Figure {
        name: "taco-4",
        title: "Cores of the special set and lock-intensive tasks (simulated)",
        remark: "The paper's: TACO 2013, section 4.6, Figure 4. All tasks of mmapbench, sockbench, postmark and grep are found to be lock-intensive as soon as there is more than one, and the number of cores is the best one. In find processes end before they are found out, and the number is 8 where 10 is the best, because it doubles. Almost no task of kernbench is found.",
        plan: taco::plan_4,
        claims: taco::claims_4,
        across: "tasks",
        shown: Shown::Set,
    },
    Figure {
        name: "taco-6",
        title: "Lock-waiting time under the default and the lock-contention-aware scheduler (simulated)",
        remark: "The paper's: TACO 2013, section 4.7, Figure 6. Once there is a collapse the scheduler reduces the waiting share, the more the more tasks there are, at 32 tasks by up to 84 %.",
        plan: taco::plan_6,
        claims: taco::claims_6,
        across: "tasks",
        shown: Shown::Waiting,
    },
    Figure {
        name: "taco-9",
        title: "Ways to avoid a collapse, and what an operation costs (simulated)",
        remark: "The paper's: TACO 2013, sections 4.9 and 4.10, Figures 3, 8, 9 and 10, for energy. The scheduler and the requester-based lock do far better than mutex and adaptive lock in throughput and energy, except for kernbench, where all but the mutex are alike; the scheduler does better than the requester-based lock but for find; with MCS locks it saves energy where they do not collapse, and sustains throughput where they do. Processor time per operation, at work or polling, stands for energy here.",
        plan: comparison::plan,
        claims: comparison::claims,
        across: "tasks",
        shown: Shown::Cost,
    },
    Figure {
        name: "bounds",
        title: "The best number of cores, and what the searches find (simulated)",
        remark: "Not from the paper, but for its section 4.6, which names what its search does badly: it doubles (8 cores where 10 are best); it may begin before all lock-intensive tasks are found; right at the collapse it takes too many cores; tasks that do not live long are not found. 32 tasks in sets that are fixed, found by the published search and by the refined one; then each weak point.",
        plan: bounds::plan,
        claims: bounds::claims,
        across: "cores of the set, or as the panel says",
        shown: Shown::Bounds,
    },
];

pub(super) fn machine(name: &str) -> Parameters {
    presets::named(name).expect("one of the presets")
}

pub(super) fn mix(name: &str) -> Workload {
    workload::named(name).expect("one of the workloads")
}

impl Size {
    pub(super) fn of<T>(self, full: T, reduced: T) -> T {
        if self == Size::Full { full } else { reduced }
    }
}

/// The seed is set when the plan is used.
pub(super) fn point(machine: &Parameters, workload: &Workload, lock: &str, threads: u32, seconds: f64) -> Point {
    Point {
        machine: machine.clone(),
        workload: workload.clone(),
        lock: lock.to_string(),
        threads,
        seconds,
        seed: 0,
        warm_up: None,
        interval_ns: None,
    }
}

/// Lines of a panel: each lock at each number of threads.
fn lines(
    panel: &str,
    machine: &Parameters,
    workload: &Workload,
    locks: &[(&str, &str)],
    threads: &[u32],
    seconds: f64,
) -> Vec<Cell> {
    let at = |&(series, lock): &(&str, &str)| {
        let cell = move |&threads: &u32| Cell {
            panel: panel.to_string(),
            series: series.to_string(),
            x: f64::from(threads),
            task: Task::Point(point(machine, workload, lock, threads, seconds)),
        };
        threads.iter().map(cell).collect::<Vec<_>>()
    };
    locks.iter().flat_map(at).collect()
}

fn tm1_lines(locks: &[(&str, &str)], threads: &[u32], size: Size) -> Vec<Cell> {
    lines("TM-1", &machine("niagara2-64"), &mix("tm1"), locks, threads, size.of(3.0, 2.0))
}

fn asplos_1(size: Size) -> Vec<Cell> {
    let threads = size.of(&[1_u32, 8, 16, 24, 32, 40, 48, 56, 63, 72, 80, 96, 128][..], &[8, 32, 63, 128]);
    tm1_lines(&[("spinning", SPINNING), ("blocking", BLOCKING)], threads, size)
}

fn asplos_3(size: Size) -> Vec<Cell> {
    let threads = size.of(&[1_u32, 16, 32, 48, 56, 63, 66, 72, 80, 96, 112, 128][..], &[32, 63, 128]);
    tm1_lines(&[("spinning", SPINNING)], threads, size)
}

fn asplos_4(size: Size) -> Vec<Cell> {
    let threads = size.of(&[1_u32, 8, 16, 24, 31, 35, 37, 39, 43, 47, 56, 63, 80, 96, 128][..], &[16, 31, 37, 47, 63]);
    tm1_lines(&[("blocking", BLOCKING)], threads, size)
}

fn asplos_5(size: Size) -> Vec<Cell> {
    let at = |(series, lock): (&str, &str)| Cell {
        panel: "TM-1".to_string(),
        series: series.to_string(),
        x: 63.0,
        task: Task::Watched(
            point(&machine("niagara2-64"), &mix("tm1"), lock, 63, size.of(4.0, 1.5)),
            32.0,
            size.of(2_000_000, 2_000_000),
        ),
    };
    [("no control", SPINNING), ("backoff", BACKOFF), ("load control", CONTROLLED)].map(at).into()
}

fn asplos_8(size: Size) -> Vec<Cell> {
    let targets = size.of(vec![8, 24, 48, 32, 40, 16, 0], vec![24, 48, 16]);
    let bump = Bump {
        machine: machine("niagara2-64"),
        // Sections so long that who waits for 15 others has waited for 20 us: before that, a waiter does not ask load
        // control (with the 60 ns of the paper's microbenchmark, 63 make it 10 us).
        workload: workload::counter(1_500, 1_000, 0),
        lock: CONTROLLED.to_string(),
        threads: 63, // and one context for who sets the target
        targets,
        hold_ns: 5_000_000,
        seed: 0,
    };
    vec![Cell { panel: "bump".to_string(), series: "load control".to_string(), x: 0.0, task: Task::Bump(bump) }]
}

fn asplos_9(size: Size) -> Vec<Cell> {
    let delays = size.of(&[12_u32, 15, 18, 24, 36, 48, 72, 100][..], &[12, 24, 100]);
    let rows = [("95 %", SPINNING, 61), ("150 %", SPINNING, 96), ("150 %, load control", CONTROLLED, 96)];
    let machine = machine("niagara2-64");
    let at = |(series, lock, threads): (&str, &str, u32)| {
        let cell = |&delay: &u32| {
            let counter = workload::counter(60, u64::from(delay) * 1_000, 0);
            Cell {
                panel: "counter".to_string(),
                series: series.to_string(),
                x: f64::from(delay),
                // What is lost are single preemptions of the holder, some a second: the shortest delays have more.
                task: Task::Point(point(
                    &machine,
                    &counter,
                    lock,
                    threads,
                    if delay < 15 { 0.5 } else { size.of(8.0, 2.0) },
                )),
            }
        };
        delays.iter().map(cell).collect::<Vec<_>>()
    };
    rows.into_iter().flat_map(at).collect()
}

fn asplos_10(size: Size) -> Vec<Cell> {
    let intervals = size.of(&[0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 40.0, 80.0, 100.0][..], &[0.5, 7.0, 100.0]);
    let (machine, tm1) = (machine("niagara2-64"), mix("tm1"));
    let at = |(series, threads): (&str, u32)| {
        let cell = |&ms: &f64| {
            let mut point = point(&machine, &tm1, CONTROLLED, threads, size.of(2.0, 1.0));
            point.interval_ns = Some((ms * 1e6) as u64);
            Cell { panel: "TM-1".to_string(), series: series.to_string(), x: ms, task: Task::Point(point) }
        };
        intervals.iter().map(cell).collect::<Vec<_>>()
    };
    [("98 %", 63), ("110 %", 72), ("150 %", 96)].into_iter().flat_map(at).collect()
}

fn asplos_11(size: Size) -> Vec<Cell> {
    let threads = size.of(&[1_u32, 8, 16, 32, 48, 63, 72, 80, 96, 112, 128][..], &[1, 63, 96, 128]);
    let locks = [("pthread", BLOCKING), ("TP-MCS", SPINNING), ("load control", CONTROLLED)];
    let machine = machine("niagara2-64");
    [("Raytrace", "raytrace", 0.4, 0.2), ("TM-1", "tm1", 3.0, 1.5), ("TPC-C", "tpcc", 2.0, 1.0)]
        .into_iter()
        .flat_map(|(panel, name, full, reduced)| {
            lines(panel, &machine, &mix(name), &locks, threads, size.of(full, reduced))
        })
        .collect()
}

fn asplos_12(size: Size) -> Vec<Cell> {
    let others = size.of(&[8_u32, 16, 32, 64, 96, 128, 192][..], &[64, 192]);
    let (machine, tm1) = (machine("niagara2-64"), mix("tm1"));
    let own = || point(&machine, &tm1, CONTROLLED, 64, size.of(4.0, 2.0));
    let mut cells =
        vec![Cell { panel: "TM-1".to_string(), series: "alone".to_string(), x: 0.0, task: Task::Point(own()) }];
    for (series, lock) in [("without", SPINNING), ("with", CONTROLLED)] {
        cells.extend(others.iter().map(|&threads| Cell {
            panel: "TM-1".to_string(),
            series: series.to_string(),
            x: f64::from(threads),
            task: Task::Beside(own(), lock.to_string(), threads),
        }));
    }
    cells
}

const DAMON_LOCKS: [(&str, &str); 5] = [
    ("pthread", BLOCKING),
    ("mcs", "mcs+none"),
    ("tpmcs", SPINNING),
    ("yield", "tpmcs-yield+none"),
    ("schedctl", "tpmcs-slice+none"),
];

fn damon_1(size: Size) -> Vec<Cell> {
    let threads = size.of(&[1_u32, 4, 8, 12, 15, 16, 18, 20, 24, 28, 32][..], &[8, 15, 32]);
    damon_lines("16 contexts", "niagara2-16", threads, size.of(4.0, 2.0))
}

fn damon_2(size: Size) -> Vec<Cell> {
    let threads = size.of(&[1_u32, 16, 24, 31, 37, 39, 47, 56, 63, 72, 80, 96, 128][..], &[31, 39, 63, 96]);
    damon_lines("64 contexts", "niagara2-64", threads, size.of(2.0, 1.5))
}

fn damon_lines(panel: &str, machine: &str, threads: &[u32], seconds: f64) -> Vec<Cell> {
    let machine = self::machine(machine);
    let of = |lock: &(&str, &str)| {
        let seconds = match lock.0 {
            // Until a waiter is preempted, which takes up to some seconds, it does well.
            "mcs" => 4.0 * seconds,
            // Waiters that all look at the time stamp of one node are slow to simulate.
            "yield" => seconds / 15.0,
            _ => seconds,
        };
        lines(panel, &machine, &mix("tm1"), core::slice::from_ref(lock), threads, seconds)
    };
    DAMON_LOCKS.iter().flat_map(of).collect()
}

fn damon_3(size: Size) -> Vec<Cell> {
    let locks = [("pthread", BLOCKING), ("tpmcs", SPINNING), ("backoff", BACKOFF)];
    let small = size.of(&[1_u32, 4, 8, 12, 15, 18, 20, 24, 28, 32][..], &[15, 32]);
    let large = size.of(&[1_u32, 16, 31, 39, 47, 63, 72, 80, 96, 128][..], &[63, 96, 128]);
    let mut cells = lines("16 contexts", &machine("niagara2-16"), &mix("tm1"), &locks, small, size.of(3.0, 1.5));
    cells.extend(lines("64 contexts", &machine("niagara2-64"), &mix("tm1"), &locks, large, size.of(3.0, 1.5)));
    cells
}

fn damon_4(size: Size) -> Vec<Cell> {
    let threads = size.of(&[15_u32, 31, 39, 47, 63, 79, 95, 127][..], &[31, 47, 95]);
    tm1_lines(&[("tpmcs", SPINNING), ("backoff", BACKOFF), ("pthread", BLOCKING)], threads, size)
}

/// Every contention manager, without load control and with it, and every load manager, on servers of one to sixteen
/// sockets with four threads for each context.
fn sizes(size: Size) -> Vec<Cell> {
    use unconvoy::catalogue::{CONTENTION, LOAD};
    let mut locks: Vec<(&str, String, String)> = Vec::new();
    for contention in CONTENTION {
        locks.push(("spinning", contention.name.to_string(), format!("{}+none", contention.name)));
        locks.push(("load control", contention.name.to_string(), format!("{}+control", contention.name)));
    }
    locks.extend(
        LOAD.iter()
            .map(|load| ("TP-MCS under every load manager", load.name.to_string(), format!("tpmcs+{}", load.name))),
    );
    if size == Size::Reduced {
        locks.retain(|(.., lock)| ["tpmcs+none", "tpmcs+control", "loiter+control"].contains(&lock.as_str()));
    }
    let sockets = size.of(&[1_u32, 4, 16][..], &[1, 2]);
    let mut cells = Vec::new();
    for &sockets in sockets {
        let mut machine = machine("server");
        machine.topology.sockets = Count::new(sockets);
        let contexts = machine.topology.contexts() as u32;
        for (panel, series, lock) in &locks {
            let mut point = point(&machine, &workload::buckets(contexts / 16), lock, 4 * contexts, 0.05);
            point.warm_up = Some(size.of(0.02, 0.01)); // until the controller's first reading is heeded
            cells.push(Cell {
                panel: panel.to_string(),
                series: series.clone(),
                x: f64::from(contexts),
                task: Task::Point(point),
            });
        }
    }
    cells
}
