//! The ways to avoid a collapse, compared (TACO 2013, sections 4.9 and 4.10, Figures 3, 8, 9 and 10): throughput, waiting, and
//! what stands for energy.
//!
//! The paper measured watts at the plug. A simulated machine has none, and processor time per operation stands for the
//! energy of one: time at work and time spent polling alike. What sleeps or is idle costs nothing, and a processor that
//! waits in `mwait` (the requester-based lock) as much as one that polls, so that this is too much for it.
//!
//! The waiting of these programs is for spin locks of the kernel, whose waiters and holders are not preempted. Mutex and
//! adaptive replace those by locks whose waiters sleep and which do not keep anybody from being preempted: the baseline
//! `futex`, which sleeps almost at once, and `tpmcs` under the load manager `adaptive`, which polls for as long as polling
//! paid before. Both are what ships; the paper's adaptive lock polls while the holder runs.

use unconvoy_sched::Parameters as Policy;

use super::programs::{DEFAULT, KERNBENCH, MCS, PROGRAMS, REFINED, REQUESTER, SPECIAL, TICKET, all, cell, share};
use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::Size;
use crate::view::{self, Lines, waiting};
use unconvoy_sim::grid::{Cell, Result};
use unconvoy_sim::outcome::Outcome;

/// The figure on a simulated machine.
pub const SIMULATED: Figure = Figure {
    name: "sim-taco-9",
    paper: Paper::Taco(9),
    title: "Ways to avoid a collapse, and what an operation costs (simulated)",
    remark: "The paper's: TACO 2013, sections 4.9 and 4.10, Figures 3, 8, 9 and 10, for energy. The scheduler and the requester-based lock do far better than mutex and adaptive lock in throughput and energy, except for kernbench, where all but the mutex are alike; the scheduler does better than the requester-based lock but for find; with MCS locks it saves energy where they do not collapse, and sustains throughput where they do. Processor time per operation, at work or polling, stands for energy here.",
    minutes: 4,
    made: Made::Simulated(Simulated { plan, claims, across: "tasks", panels: panels, table: Some(table) }),
};

const SCHEDULED_MCS: &str = "refined, mcs";

/// A way: its name, the lock, and the scheduler's policy.
type Way = (&'static str, &'static str, Option<fn(u32) -> Policy>);

/// In the order of the table.
const WAYS: [Way; 8] = [
    (DEFAULT, TICKET, None),
    ("mutex", "futex+none", None),
    ("adaptive", "tpmcs+adaptive", None),
    ("requester-based", REQUESTER, None),
    ("mcs", MCS, None),
    (SPECIAL, TICKET, Some(Policy::published)),
    (REFINED, TICKET, Some(Policy::refined)),
    (SCHEDULED_MCS, MCS, Some(Policy::refined)),
];

/// Of which the table is.
const TASKS: f64 = 32.0;

fn plan(size: Size) -> Vec<Cell> {
    let mut cells = Vec::new();
    for program in all() {
        for way in WAYS {
            let tasks: &[u32] = match (way.0, size) {
                // Its best is what all are measured by.
                (DEFAULT, Size::Full) => &[4, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 24, 32],
                (DEFAULT, Size::Reduced) => &[7, 8, 10, 12, 15, 16, 32],
                (_, Size::Full) => &[8, 16, 32],
                (_, Size::Reduced) => &[32],
            };
            let (series, lock, policy) = way;
            let policy = policy.map(|policy| policy(32));
            cells.extend(tasks.iter().map(|&tasks| cell(program, series, lock, policy, 0.5, tasks, size)));
        }
    }
    cells
}

/// Microseconds of processors at work or polling, per operation.
fn cost_us(outcome: &Outcome) -> f64 {
    let parts = &outcome.contexts;
    (parts.working + parts.spinning + parts.inverted) / outcome.per_s * 1e6
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let of_peak =
        |program: &str, series: &str| Some(results.per_s(program, series, TASKS)? / results.peak(program, DEFAULT)?);
    let mut claims = Vec::new();
    for program in PROGRAMS {
        claims.extend(claims! {
            format!("{program}: no collapse: refined, at 32 tasks .95 or more of the default's best at any number (ours)"),
                of_peak(program, REFINED), 0.95..=ANY;
        });
    }
    let fall = |series: &'static str| {
        let results = &results;
        move |program: &&str| {
            let share = |series: &str| share(results, program, series, TASKS);
            Some(1.0 - share(series)? / share(DEFAULT)?)
        }
    };
    let cost = |program: &str, series: &str| results.at(program, series, TASKS).map(cost_us);
    let cheapest = |program: &str| {
        let others = WAYS.iter().filter(|way| way.2.is_none()).filter_map(|way| cost(program, way.0));
        Some(cost(program, REFINED)? / others.reduce(f64::min)?)
    };
    claims.extend(claims! {
        "the waiting share falls by .84 or more in its best case (paper: up to .84)",
            PROGRAMS.iter().filter_map(fall(REFINED)).reduce(f64::max), 0.84..=1.0;
        "kernbench: refined has as much as the default, to .01 (ours)",
            results.ratio(KERNBENCH, (REFINED, TASKS), (DEFAULT, TASKS)), 0.99..=1.01;
    });
    for program in ["mmapbench", "sockbench", "postmark", "grep"] {
        claims.extend(claims! {
            format!("{program}: the scheduler has more than mutex and adaptive"),
                ["mutex", "adaptive"].iter().filter_map(|other| results.ratio(program, (REFINED, TASKS), (other, TASKS))).reduce(f64::min), 1.0..=ANY;
            format!("{program}: and takes at most 1.1 times the processor time per operation of whichever other takes least"),
                cheapest(program), 0.0..=1.1;
        });
    }
    claims.extend(claims! {
        "kernbench: a mutex collapses: less than .9 of the default",
            results.ratio(KERNBENCH, ("mutex", TASKS), (DEFAULT, TASKS)), 0.0..=0.9;
        "mmapbench: the scheduler with MCS has more than MCS (Figure 10)",
            results.ratio("mmapbench", (SCHEDULED_MCS, TASKS), ("mcs", TASKS)), 1.0..=ANY;
        "find: as much as MCS, or more (Figure 10)",
            results.ratio("find", (SCHEDULED_MCS, TASKS), ("mcs", TASKS)), 0.95..=ANY;
        "find: in at most .9 of the processor time per operation",
            cost("find", SCHEDULED_MCS).zip(cost("find", "mcs")).map(|(one, other)| one / other), 0.0..=0.9;
    });
    claims
}

/// The head of the table, and its rows: of each program each way at 32 tasks.
fn table(results: &[Result]) -> Vec<Vec<String>> {
    let results = Results(results);
    let head = ["program", "way", "of the default's best", "of the time waited", "processor time per operation, us"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for program in all() {
        for (way, ..) in WAYS {
            let Some((outcome, peak)) = results.at(program, way, TASKS).zip(results.peak(program, DEFAULT)) else {
                continue;
            };
            rows.push(vec![
                program.to_string(),
                way.to_string(),
                format!("{:.3}", outcome.per_s / peak),
                format!("{:.3}", waiting(outcome)),
                format!("{:.1}", cost_us(outcome)),
            ]);
        }
    }
    rows
}

fn panels(results: &[Result]) -> Vec<Lines> {
    view::each(results, |panel, values| {
        vec![(format!("{panel}: us of processors per operation"), values(&view::outcome(cost_us)))]
    })
}
