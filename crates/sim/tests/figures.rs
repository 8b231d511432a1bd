//! The papers' figures at a reduced size: whether they have the shapes that the papers claim.

use unconvoy_sim::figure::{self, Size};
use unconvoy_sim::grid;

/// The paper does not say where grep is at its best; the mix is so with 12 cores.
const DOUBLING: &str =
    "the search doubles: it finds 8 cores for a mix that is at its best with 12, as the paper's does for find";

const WATCHED_WORD: &str = "waiters of the requester-based lock save power, but watch the lock's word, and every arrival and release changes that: all of them load the line each time, as with the ticket lock";

const BELOW_THRESHOLD: &str = "8 tasks wait for 3 to 5 % of their time, and the threshold is 10 %; the paper's Figure 1 has between 3.8 and 21.8 % there, but its runs last for minutes, and one slice above the threshold is enough";

/// Claims that do not hold in the simulation: the figure, the claim's beginning, and why.
const NOT_REPRODUCED: &[(&str, &str, &str)] = &[
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
];

#[test]
fn figures_have_the_shapes_that_the_papers_claim() {
    let wanted = std::env::var("UNCONVOY_FIGURE").ok();
    let figures = figure::all().iter().filter(|figure| wanted.as_deref().is_none_or(|name| name == figure.name));
    let mut unexpected = Vec::new();
    for figure in figures {
        let begin = std::time::Instant::now();
        let ended = grid::run(&figure.cells(Size::Reduced, 1), 2, |_, _| true);
        assert!(ended.complete && ended.failures.is_empty(), "{}: {:?}", figure.name, ended.failures);
        println!("{} in {:.1} s", figure.name, begin.elapsed().as_secs_f64());
        for claim in figure.judge(&ended.results) {
            let known = NOT_REPRODUCED.iter().find(|known| known.0 == figure.name && claim.claim.starts_with(known.1));
            let verdict = if claim.holds { "holds" } else { "does not hold" };
            println!("  {verdict}: {} (found {})", claim.claim, claim.found);
            if let Some((_, _, why)) = known {
                println!("    known: {why}");
            }
            if claim.holds == known.is_some() {
                unexpected.push(format!("{}: {verdict}: {} (found {})", figure.name, claim.claim, claim.found));
            }
        }
    }
    assert!(unexpected.is_empty(), "not as expected:\n{}", unexpected.join("\n"));
}
