//! The remedies against collapse, compared (TACO 2013, sections 4.9 and 4.10, Figures 3, 8, 9 and
//! 10): throughput, waiting, and a substitute for energy.
//!
//! The paper measured watts at the plug. A simulated machine has none, so processor time per
//! operation, working, polling or in `mwait`, stands for energy. Sleeping threads and idle
//! processors cost nothing. A processor in `mwait` (the requester-based lock) counts as polling
//! here, which overstates its cost. The claims of Figure 8, on power, count the processors that
//! work or poll.
//!
//! These programs wait for the kernel's spin locks, whose waiters and holders are not preempted.
//! The remedies `mutex` and `adaptive` replace the spin locks by shipped locks whose waiters sleep,
//! and whose waiters and holders can be preempted. For `mutex` the lock is `futex`, which sleeps
//! almost at once. For `adaptive` it is `tpmcs` under the load manager `adaptive`, which bounds a
//! spin by the length of earlier spins. The paper's adaptive lock polls while the holder runs.

use unconvoy_sched::Parameters as Policy;

use super::programs::{
    DEFAULT, KERNBENCH, MCS, PROGRAMS, REFINED, REQUESTER, SPECIAL, TICKET, all, cell, share,
};
use crate::claim::{ANY, Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::Size;
use crate::view::{self, Lines, waiting};
use unconvoy_sim::grid::{Cell, Result};
use unconvoy_sim::outcome::Outcome;

pub const SIMULATED: Figure = Figure {
    name: "sim-taco-9",
    paper: Paper::Taco(9),
    title: "Ways to avoid a collapse, and what an operation costs (simulated)",
    remark: "Paper: TACO 2013, sections 4.9 and 4.10, Figures 3, 8, 9 and 10, for energy. The \
        scheduler and the requester-based lock do far better than mutex and adaptive lock in \
        throughput and energy, except for kernbench, where all but the mutex are alike. The \
        scheduler beats the requester-based lock except for find. With MCS locks it saves energy \
        where they do not collapse, and sustains throughput where they do. Here processor time \
        per operation, working, polling or in mwait, stands for energy.",
    minutes: 4,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "tasks",
        panels,
        table: Some(table),
        ..Simulated::MEDIANS
    }),
};

const REQUESTER_BASED: &str = "requester-based";
const SCHEDULED_MCS: &str = "refined, mcs";

/// A remedy: name, lock, and the scheduler's policy.
type Way = (&'static str, &'static str, Option<fn(u32) -> Policy>);

/// The remedies, in the order of the table.
const WAYS: [Way; 8] = [
    (DEFAULT, TICKET, None),
    ("mutex", "futex+none", None),
    ("adaptive", "tpmcs+adaptive", None),
    (REQUESTER_BASED, REQUESTER, None),
    ("mcs", MCS, None),
    (SPECIAL, TICKET, Some(Policy::published)),
    (REFINED, TICKET, Some(Policy::refined)),
    (SCHEDULED_MCS, MCS, Some(Policy::refined)),
];

/// Number of tasks in the table.
const TASKS: f64 = 32.0;

fn plan(size: Size) -> Vec<Cell> {
    let mut cells = Vec::new();
    for program in all() {
        for way in WAYS {
            let tasks: &[u32] = match (way.0, size) {
                // All remedies are compared with the default's peak, so its counts are dense.
                (DEFAULT, Size::Full) => &[4, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 24, 32],
                (DEFAULT, Size::Reduced) => &[7, 8, 10, 12, 15, 16, 32],
                (_, Size::Full) => &[8, 16, 32],
                (_, Size::Reduced) => &[32],
            };
            let (series, lock, policy) = way;
            let policy = policy.map(|policy| policy(32));
            cells.extend(
                tasks.iter().map(|&tasks| cell(program, series, lock, policy, 0.5, tasks, size)),
            );
        }
    }
    cells
}

/// Mean number of processors that work or poll.
fn powered(outcome: &Outcome) -> f64 {
    let parts = &outcome.contexts;
    parts.working + parts.spinning + parts.inverted
}

/// Processor time per operation, working, polling or in `mwait`, microseconds.
fn cost_us(outcome: &Outcome) -> f64 {
    (powered(outcome) + outcome.contexts.mwait) / outcome.per_s * 1e6
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let of_peak = |program: &str, series: &str| {
        Some(results.per_s(program, series, TASKS)? / results.peak(program, DEFAULT)?)
    };
    let mut claims = Vec::new();
    for program in PROGRAMS {
        claims.extend(claims! {
            format!("{program}: at 32 tasks the refined search sustains at least .95 of the \
                default's peak (ours)"),
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
        let others =
            WAYS.iter().filter(|way| way.2.is_none()).filter_map(|way| cost(program, way.0));
        Some(cost(program, REFINED)? / others.reduce(f64::min)?)
    };
    claims.extend(claims! {
        "the refined search cuts the waiting share by at least .84 in the best case (ours; the \
            paper's search: up to .84)",
            PROGRAMS.iter().filter_map(fall(REFINED)).reduce(f64::max), 0.84..=1.0;
        "kernbench: the refined search has the default's throughput, to .01 (ours)",
            results.ratio(KERNBENCH, (REFINED, TASKS), (DEFAULT, TASKS)), 0.99..=1.01;
    });
    for program in ["mmapbench", "sockbench", "postmark", "grep"] {
        claims.extend(claims! {
            format!("{program}: the refined search has more throughput than mutex and \
                adaptive (ours)"),
                ["mutex", "adaptive"].iter()
                    .filter_map(|other| results.ratio(program, (REFINED, TASKS), (other, TASKS)))
                    .reduce(f64::min), 1.0..=ANY;
            format!("{program}: the refined search takes at most 1.1 times the processor time per \
                operation of the cheapest lock (ours)"),
                cheapest(program), 0.0..=1.1;
        });
    }
    let against = |program: &str, way: &str, other: &str| {
        results.ratio(program, (way, TASKS), (other, TASKS))
    };
    let least = |way: &str| {
        let all = PROGRAMS.iter().flat_map(|program| {
            ["mutex", "adaptive"].map(|other| against(program, way, other)).into_iter().flatten()
        });
        all.reduce(f64::min)
    };
    claims.extend(claims! {
        "in each program the scheduler has more throughput than mutex and adaptive",
            least(SPECIAL), 1.0..=ANY;
        "in each program the requester-based lock has more throughput than mutex and adaptive",
            least(REQUESTER_BASED), 1.0..=ANY;
        "in each program but find the scheduler has more throughput than the requester-based lock",
            PROGRAMS.iter().filter(|program| **program != "find")
                .filter_map(|program| against(program, SPECIAL, REQUESTER_BASED))
                .reduce(f64::min), 1.0..=ANY;
        "find: the scheduler has less throughput than the requester-based lock",
            against("find", SPECIAL, REQUESTER_BASED), 0.0..=1.0;
    });
    claims.extend(power_claims(&results));
    claims.extend(claims! {
        "kernbench: a mutex has at most .9 of the default's throughput",
            results.ratio(KERNBENCH, ("mutex", TASKS), (DEFAULT, TASKS)), 0.0..=0.9;
        "mmapbench: the scheduler with MCS has more throughput than MCS (ours: refined search)",
            results.ratio("mmapbench", (SCHEDULED_MCS, TASKS), ("mcs", TASKS)), 1.0..=ANY;
        "find: the scheduler with MCS has at least .95 of MCS's throughput (ours: likewise)",
            results.ratio("find", (SCHEDULED_MCS, TASKS), ("mcs", TASKS)), 0.95..=ANY;
        "find: the scheduler with MCS takes at most .9 of MCS's processor time per operation \
            (ours: likewise)",
            cost("find", SCHEDULED_MCS).zip(cost("find", "mcs"))
                .map(|(one, other)| one / other), 0.0..=0.9;
    });
    claims
}

/// Claims of Figure 8. The paper prints no watts, only that waiters in `mwait` save power.
fn power_claims(results: &Results) -> Vec<Claim> {
    let against_default = |program: &str| {
        let powered = |series: &str| results.at(program, series, TASKS).map(powered);
        Some(powered(REQUESTER_BASED)? / powered(DEFAULT)?)
    };
    let mut claims = Vec::new();
    for program in PROGRAMS {
        claims.extend(claims! {
            format!("{program}: at 32 tasks at most .95 of the default's processors work or poll \
                under requester-based locks (Figure 8)"),
                against_default(program), 0.0..=0.95;
        });
    }
    claims.extend(claims! {
        "kernbench: at 32 tasks as many processors work or poll under requester-based locks as \
            under the default, to .02 (Figure 8)",
            against_default(KERNBENCH), 0.98..=1.02;
    });
    claims
}

/// The table: each program under each remedy at 32 tasks.
fn table(results: &[Result]) -> Vec<Vec<String>> {
    let results = Results(results);
    let head = [
        "program",
        "remedy",
        "relative to the default's best",
        "waiting share",
        "processor time per operation, us",
        "processors in mwait",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    for program in all() {
        for (way, ..) in WAYS {
            let Some((outcome, peak)) =
                results.at(program, way, TASKS).zip(results.peak(program, DEFAULT))
            else {
                continue;
            };
            rows.push(vec![
                program.to_string(),
                way.to_string(),
                format!("{:.3}", outcome.per_s / peak),
                format!("{:.3}", waiting(outcome)),
                format!("{:.1}", cost_us(outcome)),
                format!("{:.1}", outcome.contexts.mwait),
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
