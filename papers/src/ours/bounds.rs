//! The best size of the special set, the sizes that the published and the refined search find, and
//! what the weak points of the published algorithm (TACO 2013, section 4.6) cost under each search.
//!
//! A bound is the number of cores in the set. The best bound is the fixed bound with the highest
//! throughput when all 32 tasks are in the set. In a program's panel, the x of a result is the
//! fixed bound, or the number of tasks under a search. In a weak point's panel, x is the number of
//! tasks, or the milliseconds between the starts of two tasks.

use std::num::NonZeroU32;

use unconvoy_sched::{Parameters as Policy, Search};

use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::{Size, machine, mix, point};
use crate::taco::programs::{DEFAULT, PROGRAMS, TICKET, of_set};
use crate::view::{self, Lines};
use unconvoy_sim::experiment::Task;
use unconvoy_sim::grid::{Cell, Result};
use unconvoy_sim::outcome::Scheduling;

pub const SIMULATED: Figure = Figure {
    name: "sim-bounds",
    paper: Paper::Ours,
    title: "The best number of cores, and what the searches find (simulated)",
    remark: "Not from the paper, whose section 4.6 names the weak points of its search: the search \
        doubles (8 cores where 10 are best), may begin before all lock-intensive tasks are found, \
        takes too many cores right at the collapse, and misses short-lived tasks. The programs' \
        panels show 32 tasks in sets of fixed sizes, and in sets of the sizes that the published \
        and the refined search find. Each further panel shows one weak point.",
    minutes: 6,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "cores of the set, or as the panel says",
        panels,
        ..Simulated::MEDIANS
    }),
};

const FIXED: &str = "fixed";
const PUBLISHED: &str = "published";
const REFINED: &str = "refined";
/// Makes the policy for a number of cores.
type Searching = fn(u32) -> Policy;

const SEARCHES: [(&str, Searching); 2] =
    [(PUBLISHED, Policy::published), (REFINED, Policy::refined)];

/// Fixed bounds to simulate, around each program's best one.
const ABOUT: [(&str, [u32; 7]); 6] = [
    ("mmapbench", [5, 6, 7, 8, 9, 10, 11]),
    ("sockbench", [4, 5, 6, 7, 8, 9, 10]),
    ("postmark", [12, 13, 14, 15, 16, 17, 18]),
    ("postmark-10000", [13, 14, 15, 16, 17, 18, 19]),
    ("find", [7, 8, 9, 10, 11, 12, 13]),
    ("grep", [9, 10, 11, 12, 13, 14, 15]),
];

const ALL: f64 = 32.0;

/// Simulated seconds before measuring, in which the refined search ends.
const SEARCH_S: f64 = 0.5;
/// The same where few tasks wait and the scheduler finds them one by one.
const FIND_S: f64 = 1.0;
/// Simulated seconds before measuring, in which the tasks move to a fixed set.
const GATHER_S: f64 = 0.06;

/// Panels of the weak points.
const PARTLY: &str = "postmark, few found";
const SHORT: &str = "find, few tasks";
const COLLAPSE: &str = "grep, right at the collapse";
const LATE: &str = "mmapbench, one task after the other";

fn cell(
    panel: &str,
    program: &str,
    series: &str,
    x: u32,
    tasks: u32,
    scheduling: Option<Scheduling>,
    size: Size,
) -> Cell {
    let mut point = point(&machine("opteron-32"), &mix(program), TICKET, tasks, size.of(0.1, 0.05));
    point.warm_up = Some(GATHER_S);
    let task = match scheduling {
        None => Task::Point(point),
        Some(scheduling) => Task::Scheduled(point, scheduling),
    };
    Cell { panel: panel.to_string(), series: series.to_string(), x: f64::from(x), task }
}

fn searched(policy: Policy) -> Scheduling {
    Scheduling { policy, warm_up_s: SEARCH_S, stagger_ns: 0 }
}

fn plan(size: Size) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (program, bounds) in ABOUT {
        for bound in bounds {
            let search = NonZeroU32::new(bound).map_or(Search::Published, Search::Fixed);
            let held = Scheduling {
                warm_up_s: GATHER_S,
                ..searched(Policy { search, ..Policy::refined(32) })
            };
            cells.push(cell(program, program, FIXED, bound, 32, Some(held), size));
        }
        for (series, policy) in SEARCHES {
            cells.push(cell(program, program, series, 32, 32, Some(searched(policy(32))), size));
        }
    }
    for (panel, program, counts) in [
        (PARTLY, "postmark", [12, 13, 14]),
        (SHORT, "find", [9, 10, 11]),
        (COLLAPSE, "grep", [13, 14, 15]),
    ] {
        for tasks in counts {
            cells.push(cell(panel, program, DEFAULT, tasks, tasks, None, size));
            for (series, policy) in SEARCHES {
                let scheduling = Scheduling { warm_up_s: FIND_S, ..searched(policy(32)) };
                cells.push(cell(panel, program, series, tasks, tasks, Some(scheduling), size));
            }
        }
    }
    for apart_ms in [1, 2, 5, 10] {
        for (series, policy) in SEARCHES {
            let late = Scheduling {
                warm_up_s: SEARCH_S + ALL * f64::from(apart_ms) / 1e3,
                stagger_ns: u64::from(apart_ms) * 1_000_000,
                ..searched(policy(32))
            };
            cells.push(cell(LATE, "mmapbench", series, apart_ms, 32, Some(late), size));
        }
    }
    cells
}

/// The fixed bound with the highest throughput.
fn best(results: &Results, program: &str) -> Option<f64> {
    results.peak_at(program, FIXED)
}

fn found(results: &Results, program: &str, series: &str) -> Option<f64> {
    of_set(results, program, series, ALL, |set| f64::from(set.bound))
}

/// Distance between a search's bound and the best one, in cores.
fn off(results: &Results, program: &str, series: &str) -> Option<f64> {
    Some((found(results, program, series)? - best(results, program)?).abs())
}

/// A series' throughput relative to the best series', at the panel's worst point.
fn worst(results: &Results, panel: &str, series: &str) -> Option<f64> {
    let places = results.line(panel, series);
    let of_best = |x: f64| {
        let best = [DEFAULT, PUBLISHED, REFINED]
            .iter()
            .filter_map(|series| results.per_s(panel, series, x));
        Some(results.per_s(panel, series, x)? / best.reduce(f64::max)?)
    };
    places.into_iter().filter_map(|(x, _)| of_best(x)).reduce(f64::min)
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let mut claims = Vec::new();
    for program in PROGRAMS {
        let kept =
            |series| Some(results.per_s(program, series, ALL)? / results.peak(program, FIXED)?);
        claims.extend(claims! {
            format!("{program}: the refined search is at most 1 core off the best bound (ours)"),
                off(&results, program, REFINED), 0.0..=1.0;
            format!("{program}: the refined search has at least .95 of the best bound's throughput \
                (ours)"),
                kept(REFINED), 0.95..=ANY;
        });
    }
    for (program, words, bounds) in [
        (
            "find",
            "find: the published search is 2 or 3 cores off the best bound (paper: 8 where 10 \
                are best)",
            2.0..=3.0,
        ),
        (
            "grep",
            "grep: the published search is at least 2 cores off the best bound (ours)",
            2.0..=ANY,
        ),
    ] {
        claims.extend(claims! {
            words, off(&results, program, PUBLISHED), bounds;
        });
    }
    let gain =
        |panel: &str| Some(worst(&results, panel, REFINED)? / worst(&results, panel, PUBLISHED)?);
    for panel in [PARTLY, SHORT, COLLAPSE, LATE] {
        claims.extend(claims! {
            format!("{panel}: the refined search's worst point is at least .95 of the best \
                throughput there (ours)"),
                worst(&results, panel, REFINED), 0.95..=ANY;
            format!("{panel}: the refined search's worst point is better than the published \
                search's (ours)"),
                gain(panel), 1.0..=ANY;
        });
    }
    claims
}

/// Throughput over the set's cores in a program's panel, and over x in a weak point's panel.
fn panels(results: &[Result]) -> Vec<Lines> {
    let mut panels: Vec<Lines> = Vec::new();
    for result in results {
        let Some(outcome) = result.measured.outcome() else { continue };
        let set = outcome.set.filter(|_| PROGRAMS.contains(&result.panel.as_str()));
        let x = set.map_or(result.x, |set| f64::from(set.bound));
        let title = format!("{}, per simulated second", result.panel);
        let place = panels.iter().position(|panel| panel.0 == title).unwrap_or_else(|| {
            panels.push((title, Vec::new()));
            panels.len() - 1
        });
        view::add(&mut panels[place].1, &result.series, (x, outcome.per_s));
    }
    panels
}
