//! The papers' figures at a reduced size: whether they have the shapes that the papers claim.

use unconvoy_sim::figure::{self, Size};
use unconvoy_sim::grid;

/// Claims that do not hold in the simulation: the figure, the claim's beginning, and why.
const NOT_REPRODUCED: &[(&str, &str, &str)] = &[];

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
