//! The papers' figures at a reduced size: whether they have the shapes that the papers claim.

use unconvoy_papers::catalogue::FIGURES;
use unconvoy_papers::figure::{Made, Simulated};
use unconvoy_papers::plan::Size;
use unconvoy_sim::grid;

/// The paper does not say where grep is at its best; the mix is so with 12 cores.
const DOUBLING: &str =
    "the search doubles: it finds 8 cores for a mix that is at its best with 12, as the paper's does for find";

const WATCHED_WORD: &str = "waiters of the requester-based lock save power, but watch the lock's word, and every arrival and release changes that: all of them load the line each time, as with the ticket lock";

const BELOW_THRESHOLD: &str = "8 tasks wait for 3 to 5 % of their time, and the threshold is 10 %; the paper's Figure 1 has between 3.8 and 21.8 % there, but its runs last for minutes, and one slice above the threshold is enough";

const FEW_WAIT: &str = "who backs off or sleeps for load has to wait for a lock, and with 63 clients on 64 contexts few do: both stay above the target, and sleepers come back after 100 ms; the papers' backoff lets every thread sleep at the end of its transaction (DaMoN 2009, section 3.4)";

const STEADY: &str = "the controller that ships rests a hundred times as long as a reading takes, so that the shortest intervals are not reached and cost nothing; and the load of the mix is steady, so that old readings are as good as new ones";

const COLLAPSES: &str = "the simulated scheduler has one length of time slice, and its threads no priorities that are raised once a second, as Solaris' have: once holders are preempted more is lost than the paper's part";

const GRANTED: &str = "the simulated scheduler grants every request for a longer slice, and sections are shorter than that; Solaris often did not, for reasons that the paper leaves open (section 3.2)";

const YIELDS_TO_THE_HOLDER: &str = "two threads share a context here, and who yields there yields to the holder; under Solaris a holder whose slice has ended has a lower priority than those who yield (not modelled)";

const LATE_WRITES: &str = "the model has all writers of Prob take turns for whole sections, and redraws who writes in each round, so that half of any number of processors gain; the simulated ones write at the end and take turns for the line's way alone, 200 ns, which is less than that on 8 processors, and on 32 no less than on 8";

/// Claims that do not hold in the simulation: the figure, the claim's beginning, and why.
const NOT_REPRODUCED: &[(&str, &str, &str)] = &[
    ("asplos-3", "at 128 threads inversion takes", COLLAPSES),
    ("asplos-5", "backoff's number of running threads varies", FEW_WAIT),
    ("asplos-5", "and 1.5 times as much as under load control", FEW_WAIT),
    ("asplos-10", "at 150 % load .5 ms is worse", STEADY),
    ("asplos-10", "at 150 % load 100 ms is worse", STEADY),
    ("asplos-10", "a reading costs more the more threads", STEADY),
    (
        "asplos-11",
        "Raytrace: one thread is at least a tenth slower",
        "an uncontended acquisition of the modelled Solaris mutex is as cheap as TP-MCS's; the real one calls a function of libc that does more",
    ),
    ("asplos-12", "against 192 threads without load control", COLLAPSES),
    ("asplos-12", "and other has less than self", COLLAPSES),
    ("damon-1", "at 32 threads pthread is the best", GRANTED),
    ("damon-1", "yielding makes tpmcs no better", YIELDS_TO_THE_HOLDER),
    ("damon-2", "schedctl hardly helps", GRANTED),
    ("damon-2", "yielding makes tpmcs no better", YIELDS_TO_THE_HOLDER),
    (
        "damon-4",
        "and leaves contexts idle",
        "with 95 threads too few sleep at a time; the papers' backoff lets every thread sleep at the end of its transaction",
    ),
    ("syncchar-5", "the mean error is at most", LATE_WRITES),
    ("syncchar-5", "Prob: its own mean error", LATE_WRITES),
    ("syncchar-5", "Prob at 32 processors: projected", LATE_WRITES),
    ("taco-3", "grep: the scheduler sustains", DOUBLING),
    (
        "taco-3",
        "find: MCS does not collapse",
        "the tasks here are never idle, the paper's are for much of their time (Figure 5): the lock is saturated from 16 cores on, and the more chips there are the more hand-overs go to another one (were all chips as near as a chip's own cores, nothing would be lost)",
    ),
    ("taco-3", "mmapbench: requester-based locks do not collapse", WATCHED_WORD),
    ("taco-3", "sockbench: requester-based locks do not collapse", WATCHED_WORD),
    ("taco-4", "postmark: all of 8 tasks", BELOW_THRESHOLD),
    ("taco-4", "postmark-10000: all of 8 tasks", BELOW_THRESHOLD),
    ("taco-4", "grep: all of 8 tasks", BELOW_THRESHOLD),
    ("taco-4", "grep: the number of cores found", DOUBLING),
    (
        "taco-9",
        "kernbench: a mutex collapses",
        "its tasks wait for .4 % of their time for the kernel's locks; what sleeping and being woken cost is not seen beside that. The paper's kernel takes them more often, or sleeps at a greater cost",
    ),
];

/// The simulated figures, by their names without `sim-`.
fn simulated() -> impl Iterator<Item = (&'static str, &'static Simulated)> {
    FIGURES.iter().filter_map(|figure| match &figure.made {
        Made::Simulated(simulated) => Some((figure.name.trim_start_matches("sim-"), simulated)),
        Made::Native(_) => None,
    })
}

#[test]
#[ignore = "make test-all: takes minutes"]
fn figures_have_the_shapes_that_the_papers_claim() {
    let wanted = std::env::var("UNCONVOY_FIGURE").ok();
    let mut unexpected = Vec::new();
    for (name, figure) in simulated().filter(|(name, _)| wanted.as_deref().is_none_or(|wanted| wanted == *name)) {
        let begin = std::time::Instant::now();
        let ended = grid::run(&figure.cells(Size::Reduced, 1), 2, |_, _| true);
        assert!(ended.complete && ended.failures.is_empty(), "{}: {:?}", name, ended.failures);
        println!("{} in {:.1} s", name, begin.elapsed().as_secs_f64());
        for claim in (figure.claims)(&ended.results) {
            let known = NOT_REPRODUCED.iter().find(|known| known.0 == name && claim.claim.starts_with(known.1));
            let verdict = if claim.holds { "holds" } else { "does not hold" };
            println!("  {verdict}: {} (found {})", claim.claim, claim.found);
            if let Some((_, _, why)) = known {
                println!("    known: {why}");
            }
            if claim.holds == known.is_some() {
                unexpected.push(format!("{}: {verdict}: {} (found {})", name, claim.claim, claim.found));
            }
        }
    }
    assert!(unexpected.is_empty(), "not as expected:\n{}", unexpected.join("\n"));
}
