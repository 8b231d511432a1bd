//! Figure 5: user, system and idle time of the busy cores.
//!
//! A core is busy if a task runs on it at any time of the measurement: the paper explains find's
//! idle time by its many cores that "are reported to be busy". Work outside critical sections is
//! divided by an [input](user_part); sections and waits are system time.

use super::programs::{DEFAULT, KERNBENCH, SPECIAL, all, default, special};
use super::single_counter::PROGRAM as SINGLE_COUNTER;
use crate::claim::{Claim, Results, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::plan::Size;
use crate::view::{self, Lines, Quantity};
use unconvoy_sim::experiment::Measured;
use unconvoy_sim::grid::{Cell, Result};
use unconvoy_sim::outcome::Outcome;
use unconvoy_sim::workload::user_part;

pub const SIMULATED: Figure = Figure {
    name: "sim-taco-5",
    paper: Paper::Taco(5),
    title: "User, system and idle time of the busy cores (simulated)",
    remark: "Paper: TACO 2013, section 4.7, Figure 5. The breakdown is similar under both \
        schedulers. With single counter, mmapbench, sockbench, postmark and grep the busy cores \
        are in use all the time, mostly in kernel mode. kernbench is mostly in user mode, and its \
        cores are idle for a part of the time with more than 4 cores. find has the largest idle \
        part. Here the part of user mode in the work outside critical sections is an input.",
    minutes: 1,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "tasks",
        panels,
        table: Some(table),
        ..Simulated::MEDIANS
    }),
};

/// Programs whose busy cores are never idle in the paper.
const SATURATED: [&str; 6] =
    [SINGLE_COUNTER, "mmapbench", "sockbench", "postmark", "postmark-10000", "grep"];
const FIND: &str = "find";
const SCHEDULERS: [&str; 2] = [DEFAULT, SPECIAL];
const TASKS: f64 = 32.0;

/// The time of the busy cores, in fractions of it.
#[derive(Debug, Clone, Copy)]
struct Breakdown {
    user: f64,
    system: f64,
    idle: f64,
    /// The part of `system` spent waiting for locks.
    waiting: f64,
    /// Number of busy cores.
    busy: f64,
}

const PORTIONS: [Quantity<Breakdown>; 3] =
    [("user", |time| time.user), ("system", |time| time.system), ("idle", |time| time.idle)];

impl Breakdown {
    fn of(program: &str, outcome: &Outcome) -> Option<Self> {
        let (parts, idle) = (&outcome.contexts, outcome.idle?);
        let waiting = parts.spinning + parts.inverted + parts.mwait;
        let used = parts.working + waiting;
        let user = user_part(program)? * parts.outside;
        let busy = used + idle;
        let part = |contexts: f64| contexts / busy;
        Some(Breakdown {
            user: part(user),
            system: part(used - user),
            idle: part(idle),
            waiting: part(waiting),
            busy,
        })
    }

    /// The largest difference of a portion.
    fn difference(&self, other: &Breakdown) -> f64 {
        PORTIONS.iter().map(|(_, of)| (of(self) - of(other)).abs()).fold(0.0, f64::max)
    }
}

fn programs() -> impl Iterator<Item = &'static str> {
    [SINGLE_COUNTER].into_iter().chain(all())
}

fn plan(size: Size) -> Vec<Cell> {
    // The paper's numbers of cores.
    let tasks = size.of(&[1, 2, 4, 8, 16, 32][..], &[1, 4, 8, 32]);
    let both = |program| [default(program, tasks, size), special(program, tasks, size)].concat();
    programs().flat_map(both).collect()
}

/// The breakdowns of a line, with the numbers of tasks.
fn line(results: &Results, program: &str, series: &str) -> Vec<(f64, Breakdown)> {
    let points = results.line(program, series).into_iter();
    points.filter_map(|(tasks, outcome)| Some((tasks, Breakdown::of(program, outcome)?))).collect()
}

fn idle_at_most(results: &Results, program: &str) -> Option<f64> {
    let lines = SCHEDULERS.into_iter().flat_map(|series| line(results, program, series));
    lines.map(|(_, time)| time.idle).reduce(f64::max)
}

/// How much more of find's time is idle than of any other program's, at the most tasks.
fn lead_of_find(results: &Results, series: &str) -> Option<f64> {
    let idle = |program| Some(Breakdown::of(program, results.at(program, series, TASKS)?)?.idle);
    let others = programs().filter(|&program| program != FIND).filter_map(idle);
    Some(idle(FIND)? - others.reduce(f64::max)?)
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let mut claims = Vec::new();
    for program in SATURATED {
        claims.extend(claims! {
            format!("{program}: under both schedulers the busy cores are in use for at least .98 \
                of the time, with any number of tasks (paper: 100 %)"),
                idle_at_most(&results, program).map(|idle| 1.0 - idle), 0.98..=1.0;
        });
    }
    for program in programs() {
        let pairs = line(&results, program, DEFAULT).into_iter();
        let pairs = pairs.zip(line(&results, program, SPECIAL));
        claims.extend(claims! {
            format!("{program}: under the scheduler each portion is the default's, to .1, with \
                any number of tasks"),
                pairs.map(|((_, one), (_, other))| one.difference(&other)).reduce(f64::max),
                0.0..=0.1;
        });
    }
    let kernbench = |series: &str| line(&results, KERNBENCH, series).into_iter();
    let few = kernbench(DEFAULT).filter(|(tasks, _)| *tasks <= 4.0);
    let many = kernbench(DEFAULT).filter(|(tasks, _)| *tasks > 4.0);
    claims.extend(claims! {
        "kernbench: under both schedulers more than half of the time is user time, with any \
            number of tasks",
            kernbench(DEFAULT).chain(kernbench(SPECIAL)).map(|(_, time)| time.user)
                .reduce(f64::min), 0.5..=1.0;
        "kernbench: with up to 4 tasks the busy cores are idle for at most .02 of the time",
            few.map(|(_, time)| time.idle).reduce(f64::max), 0.0..=0.02;
        "kernbench: with more than 4 tasks the busy cores are idle for at least .02 of the time",
            many.map(|(_, time)| time.idle).reduce(f64::min), 0.02..=1.0;
        "find: at 32 tasks its idle portion is the largest of all programs under the default, by \
            at least .01",
            lead_of_find(&results, DEFAULT), 0.01..=1.0;
        "find: at 32 tasks its idle portion is the largest of all programs under the scheduler, \
            by at least .01",
            lead_of_find(&results, SPECIAL), 0.01..=1.0;
    });
    claims
}

/// The table: each program under each scheduler at 32 tasks.
fn table(results: &[Result]) -> Vec<Vec<String>> {
    let results = Results(results);
    let head = ["program", "scheduler", "busy cores", "user", "system", "of it waiting", "idle"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for program in programs() {
        for series in SCHEDULERS {
            let Some(outcome) = results.at(program, series, TASKS) else { continue };
            let Some(time) = Breakdown::of(program, outcome) else { continue };
            let portions = [time.user, time.system, time.waiting, time.idle];
            let mut row =
                vec![program.to_string(), series.to_string(), format!("{:.0}", time.busy)];
            row.extend(portions.map(|portion| format!("{portion:.3}")));
            rows.push(row);
        }
    }
    rows
}

fn panels(results: &[Result]) -> Vec<Lines> {
    view::each(results, |panel, values| {
        let line = |(what, of): Quantity<Breakdown>| {
            let percent =
                |measured: &Measured| Some(100.0 * of(&Breakdown::of(panel, measured.outcome()?)?));
            values(&percent).into_iter().map(move |line| (format!("{}: {what}", line.0), line.1))
        };
        let lines = PORTIONS.into_iter().flat_map(line).collect();
        vec![(format!("{panel}: % of the time of the busy cores"), lines)]
    })
}
