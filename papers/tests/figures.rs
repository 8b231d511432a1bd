//! The simulated figures at reduced size: do they have the shapes that the papers claim?

use std::time::{SystemTime, UNIX_EPOCH};

use unconvoy_papers::catalogue::FIGURES;
use unconvoy_papers::figure::{Made, Simulated};
use unconvoy_papers::plan::Size;
use unconvoy_sim::grid::{self, Cell};

/// The paper does not say where grep is best; this mix is best with 12 cores.
const DOUBLING: &str = "the search doubles: it finds 8 cores for a mix that is best with 12, as \
    the paper's search does for find";

const WATCHED_WORD: &str = "waiters of the requester-based lock save power, but all of them watch \
    the lock's word, which every arrival and release changes: each change wakes all, and each of \
    them loads the line after the exit latency; a longer latency thins these loads out but delays \
    every hand-over to a waiter that has just become the first";

const BELOW_THRESHOLD: &str = "8 tasks wait for 3 to 5 % of their time, below the threshold of 10 \
    %; the paper's Figure 1 has 3.8 to 21.8 % up to 16 cores, but its runs last for minutes, and \
    one slice above the threshold is enough";

const STEADY: &str = "the shipped controller rests a hundred times as long as a reading takes, so \
    it never reaches the shortest intervals and they cost nothing; the mix's load is steady, so \
    old readings are as good as new ones";

const FEW_SECONDS: &str = "with Solaris' priorities, TP-MCS on 64 contexts makes 5,120 \
    transactions a second over 2 s and 17,200 over 3 s: priorities rise once a second, and a run \
    has only a few of these seconds (without them schedctl had 37 times its throughput, yield 174)";

const WAKES_FIRST: &str = "threads that wake from backoff have a higher priority than those that \
    compute, and preempt lock holders; a spinner then keeps the holder's context until its own \
    priority has fallen below the holder's (probable, not proven)";

const COLLAPSES: &str = "a preempted holder of the lock, or a waiter that is handed the lock \
    after its preemption, costs more than in the paper";

const LATE_WRITES: &str = "the model makes all writers of Prob take turns for whole sections, and \
    redraws the writers in each round, so half of any number of processors gain; simulated \
    writers write at the end and take turns only for the line's transfer, 200 ns, which costs \
    less than the model assumes on 8 processors, and no less on 32";

const QUICKER: &str = "the simulated response is faster than the measured one: waiters look at the \
    sleep slots in every turn, and learn of a new target with one transfer of a cache line; \
    the machine has no interrupts and no other programs that delay the setter or the wake-ups";

const SAME_COST: &str = "the modelled Solaris mutex costs as much as TP-MCS without contention; \
    the real one calls a libc function that does more";

const FITTED: &str = "the programs were fitted under ticket locks; under test-and-set locks the \
    runs and with them the projected times are shorter, those of the transactions are the same";

const NOT_CONSULTED: &str = "with sections of 60 ns no waiter waits for 20 us, after which it \
    would consult load control";

const NO_CONTEXT: &str = "the setter of the target is the 65th thread on 64 contexts, and a time \
    slice lasts for 100 ms: its changes come late or not at all";

const GENTLER: &str = "load control loses less than in the paper: the simulated machine runs \
    nothing else, and a preemption costs a switch of 6 us and no cold caches";

const FASTER_LINES: &str = "the mix is fitted to the AMD machine's collapse; where lines move \
    faster, its lock saturates only with 32 cores";

const GROWS: &str = "the shipped margin grows while threads mostly work and is dropped once they \
    poll, so the number of running threads rises and falls; the paper's load control has no margin";

const SEARCHES_AGAIN: &str = "with 4 tasks the search starts again several times within the \
    measurement, and cores that it tries and gives up count as busy";

const USER_SHOWS: &str = "by default the program waits for .9 or more of the time; the scheduler \
    gives most of it back to work, of which .26 (grep) or .32 (mmapbench) is user time, an input; \
    with at most .12 the portions would be similar";

const SHORT_SEARCH: &str = "at reduced size a run is too short for the published search; at full \
    size the least ratio of the six programs is 1.32";

const NEVER_IDLE: &str = "a mix's tasks never sleep, and the next process of find starts at once \
    on the same core";

/// Claims that do not hold in the simulation: the figure, the claim's beginning, and why.
const NOT_REPRODUCED: &[(&str, &str, &str)] = &[
    ("asplos-1", "at 128 threads spinning keeps", COLLAPSES),
    ("asplos-1-published", "at 128 threads spinning keeps", COLLAPSES),
    ("asplos-5", "under backoff the number varies at least 1.5", GROWS),
    ("asplos-8", "the first thread reacts", QUICKER),
    ("asplos-8", "the number of awake threads", QUICKER),
    ("asplos-8-published", "63 threads, as published", QUICKER),
    ("asplos-8-published", "63 threads, as shipped", NOT_CONSULTED),
    ("asplos-8-published", "64 threads", NO_CONTEXT),
    ("asplos-10", "at 150 % load an interval of .5 ms", STEADY),
    ("asplos-10", "at 150 % load an interval of 100 ms", STEADY),
    ("asplos-10", "readings cost more with more threads", STEADY),
    ("asplos-11", "Raytrace: one thread is at least a tenth slower", SAME_COST),
    ("asplos-11-published", "TM-1: at 128 threads TP-MCS keeps", COLLAPSES),
    ("asplos-11-published", "Raytrace: one thread is at least a tenth slower", SAME_COST),
    ("asplos-11", "Raytrace: at 128 threads TP-MCS keeps", COLLAPSES),
    ("asplos-11-published", "Raytrace: at 128 threads TP-MCS keeps", COLLAPSES),
    ("asplos-11", "Raytrace: at 128 threads load control keeps", GENTLER),
    ("asplos-11-published", "Raytrace: at 128 threads load control keeps", GENTLER),
    ("asplos-11", "TM-1: at 128 threads TP-MCS keeps", COLLAPSES),
    ("asplos-11", "TM-1: at 128 threads load control keeps", GENTLER),
    (
        "bounds",
        "find, few tasks: the refined search's worst point is at least",
        "at reduced size its worst point has .942 of the best; at full size the claim holds",
    ),
    ("damon-2", "at 96 threads schedctl has at most", FEW_SECONDS),
    ("damon-3", "64 contexts, 128 threads: backoff has at least .8", WAKES_FIRST),
    ("syncchar-5", "the mean error is at most", LATE_WRITES),
    ("syncchar-5", "Prob: the mean error", LATE_WRITES),
    ("syncchar-5", "Prob: at 32 processors the projected time", LATE_WRITES),
    ("syncchar-5-published", "the mean error is at most", FITTED),
    ("syncchar-5-published", "Prob: the mean error", LATE_WRITES),
    ("syncchar-5-published", "RW: the mean error", FITTED),
    ("syncchar-5-published", "RB-Tree: the mean error", FITTED),
    ("syncchar-5-published", "Prob: at 32 processors the projected time", LATE_WRITES),
    (
        "taco-1",
        "on 2 cores .015",
        "two tasks wait for less than 1 % of their time; the paper does not say for how many \
            cores its smallest share, 3.81 %, was measured",
    ),
    ("taco-3", "grep: at 32 cores the scheduler sustains", DOUBLING),
    (
        "taco-3",
        "find: at 32 cores MCS keeps",
        "the tasks here are never idle, while the paper's often are (Figure 5): the lock is \
            saturated from 16 cores on, and more chips mean more hand-overs between chips (nothing \
            would be lost if all chips were as near as the cores of one)",
    ),
    ("taco-3", "mmapbench: at 32 cores requester-based locks keep", WATCHED_WORD),
    ("taco-3", "sockbench: at 32 cores requester-based locks keep", WATCHED_WORD),
    ("taco-7", "postmark: at 32 cores the default keeps", FASTER_LINES),
    ("taco-4", "postmark: all of 8 tasks", BELOW_THRESHOLD),
    ("taco-4", "postmark-10000: all of 8 tasks", BELOW_THRESHOLD),
    ("taco-4", "grep: all of 8 tasks", BELOW_THRESHOLD),
    ("taco-4", "grep: on the number of cores found", DOUBLING),
    ("taco-5", "single-counter: under both schedulers", SEARCHES_AGAIN),
    ("taco-5", "single-counter: under the scheduler", SEARCHES_AGAIN),
    ("taco-5", "mmapbench: under the scheduler", USER_SHOWS),
    ("taco-5", "grep: under the scheduler", USER_SHOWS),
    (
        "taco-5",
        "find: under the scheduler",
        "a new process runs outside the special set until it is found lock-intensive, so 4 more \
            cores are busy, but for little of the time; by default no core is ever idle",
    ),
    ("taco-5", "kernbench: with more than 4 tasks", NEVER_IDLE),
    (
        "taco-5",
        "find: at 32 tasks its idle portion is the largest of all programs under the def",
        NEVER_IDLE,
    ),
    ("taco-9", "in each program the scheduler has more", SHORT_SEARCH),
    ("taco-9", "in each program the requester-based", WATCHED_WORD),
    ("taco-9", "find: the scheduler has less", WATCHED_WORD),
    (
        "taco-9",
        "kernbench: a mutex has at most",
        "its tasks wait for the kernel's locks for .4 % of their time, so the cost of sleeping \
            does not show; the paper's kernel takes these locks more often, or sleeps at a greater \
            cost",
    ),
];

/// Simulated figures, by their names without `sim-`.
fn simulated() -> impl Iterator<Item = (&'static str, &'static Simulated)> {
    FIGURES.iter().filter_map(|figure| match &figure.made {
        Made::Simulated(simulated) => Some((figure.name.trim_start_matches("sim-"), simulated)),
        Made::Native(_) => None,
    })
}

/// The figures to simulate: `UNCONVOY_FIGURE`, which may be `all`, or else every second one, since
/// all take a quarter of an hour of one processor.
fn wanted() -> Vec<(&'static str, &'static Simulated)> {
    if let Ok(name) = std::env::var("UNCONVOY_FIGURE") {
        let name = name.trim_start_matches("sim-");
        let wanted: Vec<_> =
            simulated().filter(|figure| name == "all" || name == figure.0).collect();
        assert!(!wanted.is_empty(), "no simulated figure {name}");
        return wanted;
    }
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let seed = std::env::var("UNCONVOY_SUITE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(now);
    println!(
        "every second figure (UNCONVOY_SUITE_SEED={seed} draws the same, UNCONVOY_FIGURE=all runs \
            all)"
    );
    simulated().skip((seed % 2) as usize).step_by(2).collect()
}

/// Simulates the cells of all figures at once. Cells with the same task are simulated once.
fn simulate(figures: &[(&'static str, &'static Simulated)]) -> Vec<Vec<grid::Result>> {
    let cells_of = |(_, figure): &(_, &Simulated)| figure.cells(Size::Reduced, 1);
    let cells: Vec<Vec<Cell>> = figures.iter().map(cells_of).collect();
    let mut distinct: Vec<Cell> = Vec::new();
    for cell in cells.iter().flatten() {
        if distinct.iter().all(|other| other.task != cell.task) {
            distinct.push(cell.clone());
        }
    }
    println!("{} cells, {} distinct", cells.iter().flatten().count(), distinct.len());
    let ended = grid::run(&distinct, 2, |_, _| true);
    assert!(ended.complete && ended.failures.is_empty(), "{:?}", ended.failures);
    let result = |cell: &Cell| {
        let same = distinct.iter().position(|other| other.task == cell.task);
        let measured = ended.results[same.expect("simulated")].measured.clone();
        grid::Result { panel: cell.panel.clone(), series: cell.series.clone(), x: cell.x, measured }
    };
    cells.iter().map(|cells| cells.iter().map(result).collect()).collect()
}

#[test]
#[ignore = "make test-all: takes minutes"]
fn simulated_figures_match_paper_claims() {
    let figures = wanted();
    let mut unexpected = Vec::new();
    for ((name, figure), results) in figures.iter().zip(simulate(&figures)) {
        println!("{name}");
        for claim in (figure.claims)(&results) {
            let known = NOT_REPRODUCED
                .iter()
                .find(|known| known.0 == *name && claim.words.starts_with(known.1));
            let verdict = if claim.holds() { "holds" } else { "does not hold" };
            println!("  {verdict}: {} (found {})", claim.words, claim.found());
            if let Some((_, _, why)) = known {
                println!("    known: {why}");
            }
            if claim.holds() == known.is_some() {
                let (words, found) = (&claim.words, claim.found());
                unexpected.push(format!("{name}: {verdict}: {words} (found {found})"));
            }
        }
    }
    assert!(unexpected.is_empty(), "not as expected:\n{}", unexpected.join("\n"));
}
