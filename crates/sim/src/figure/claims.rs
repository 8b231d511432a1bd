//! The shapes that the papers claim, and how each is looked for in what was simulated.
//!
//! A claim has a number, made from results, and bounds on it that are the paper's with a tolerance that the claim names.
//! Tolerances were set before anything was simulated; a claim that does not hold stays as it is, and says so.

use std::ops::RangeInclusive;

use super::Claim;
use crate::grid::Result;
use crate::outcome::Outcome;

/// Results, by their places.
pub(super) struct Results<'a>(pub(super) &'a [Result]);

impl<'a> Results<'a> {
    pub(super) fn at(&self, panel: &str, series: &str, x: f64) -> Option<&'a Outcome> {
        let is_there = |result: &&Result| result.panel == panel && result.series == series && result.x == x;
        self.0.iter().find(is_there).and_then(|result| result.measured.outcome())
    }

    pub(super) fn line(&self, panel: &str, series: &str) -> Vec<(f64, &'a Outcome)> {
        let of_line = self.0.iter().filter(|result| result.panel == panel && result.series == series);
        of_line.filter_map(|result| Some((result.x, result.measured.outcome()?))).collect()
    }

    pub(super) fn per_s(&self, panel: &str, series: &str, x: f64) -> Option<f64> {
        self.at(panel, series, x).map(|outcome| outcome.per_s)
    }

    pub(super) fn peak(&self, panel: &str, series: &str) -> Option<f64> {
        self.line(panel, series).into_iter().map(|(_, outcome)| outcome.per_s).reduce(f64::max)
    }

    /// Where the peak is.
    pub(super) fn peak_at(&self, panel: &str, series: &str) -> Option<f64> {
        let line = self.line(panel, series);
        line.into_iter().max_by(|one, other| one.1.per_s.total_cmp(&other.1.per_s)).map(|(x, _)| x)
    }

    pub(super) fn ratio(&self, panel: &str, one: (&str, f64), other: (&str, f64)) -> Option<f64> {
        Some(self.per_s(panel, one.0, one.1)? / self.per_s(panel, other.0, other.1)?)
    }

    /// A point's throughput as a part of its line's peak.
    pub(super) fn kept(&self, panel: &str, series: &str, x: f64) -> Option<f64> {
        Some(self.per_s(panel, series, x)? / self.peak(panel, series)?)
    }

    pub(super) fn largest_x(&self) -> f64 {
        self.0.iter().map(|result| result.x).fold(0.0, f64::max)
    }
}

pub(super) fn claim(words: &str, number: Option<f64>, bounds: RangeInclusive<f64>) -> Claim {
    Claim {
        claim: words.to_string(),
        found: number.map_or_else(|| "not simulated".to_string(), |number| format!("{number:.3}")),
        holds: number.is_some_and(|number| bounds.contains(&number)),
    }
}

pub(super) const ANY: f64 = f64::INFINITY;

pub(super) fn asplos_1(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let last = results.largest_x();
    vec![
        claim("blocking has its peak at 24 to 48 threads", results.peak_at("TM-1", "blocking"), 24.0..=48.0),
        claim(
            "at 63 threads blocking has at most .7 of spinning",
            results.ratio("TM-1", ("blocking", 63.0), ("spinning", 63.0)),
            0.0..=0.7,
        ),
        claim(
            "spinning at 63 threads has at least 1.7 times what it has at 32",
            results.ratio("TM-1", ("spinning", 63.0), ("spinning", 32.0)),
            1.7..=ANY,
        ),
        claim(
            "at 128 threads spinning keeps at most .5 of its peak",
            results.kept("TM-1", "spinning", 128.0),
            0.0..=0.5,
        ),
        claim(
            "blocking falls, but does not collapse: .3 of its peak or more at the most threads",
            results.kept("TM-1", "blocking", last),
            0.3..=1.0,
        ),
    ]
}

/// Parts of the processor time that is used.
fn part(outcome: Option<&Outcome>, of: impl Fn(&crate::outcome::Parts) -> f64) -> Option<f64> {
    outcome.map(|outcome| {
        let contexts = &outcome.contexts;
        of(contexts) / (contexts.working + contexts.spinning + contexts.inverted)
    })
}

pub(super) fn asplos_3(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let at = |x: f64| results.at("TM-1", "spinning", x);
    let last = results.largest_x();
    vec![
        claim(
            "at 63 threads at most .1 of the time is spent spinning on locks whose holders run",
            part(at(63.0), |parts| parts.spinning),
            0.0..=0.1,
        ),
        claim("at 63 threads at most .1 is lost to inversion", part(at(63.0), |parts| parts.inverted), 0.0..=0.1),
        claim(
            "at 128 threads inversion takes .6 to .95 of the time (paper: up to .85)",
            part(at(last), |parts| parts.inverted),
            0.6..=0.95,
        ),
        claim(
            "true contention falls when inversion comes: less at 128 threads than .1",
            part(at(last), |parts| parts.spinning),
            0.0..=0.1,
        ),
    ]
}

pub(super) fn asplos_4(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let per_transaction =
        |x: f64| results.at("TM-1", "blocking", x).map(|outcome| outcome.switches_per_s / outcome.per_s);
    let low = per_transaction(16.0);
    vec![
        claim("at 16 threads there are at most 1.3 switches per transaction", low, 0.0..=1.3),
        claim(
            "at 47 threads twice as many per transaction as at 31 or more",
            per_transaction(47.0).zip(per_transaction(31.0)).map(|(one, other)| one / other),
            2.0..=ANY,
        ),
        claim(
            "at 63 threads throughput is below the peak: at most .9",
            results.kept("TM-1", "blocking", 63.0),
            0.0..=0.9,
        ),
    ]
}

pub(super) fn asplos_5(results: &[Result]) -> Vec<Claim> {
    let counts = |series: &str| {
        results.iter().find(|result| result.series == series).and_then(|result| match &result.measured {
            crate::experiment::Measured::Counts(counts) => {
                // The first third is the beginning.
                Some(counts[counts.len() / 3..].iter().map(|&(_, count)| f64::from(count)).collect::<Vec<_>>())
            }
            _ => None,
        })
    };
    let mean = |counts: &Vec<f64>| counts.iter().sum::<f64>() / counts.len().max(1) as f64;
    let deviation = |counts: Vec<f64>| {
        let mean = mean(&counts);
        (counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len().max(1) as f64).sqrt()
    };
    let (none, backoff, control) =
        (counts("no control").map(deviation), counts("backoff").map(deviation), counts("load control").map(deviation));
    vec![
        claim(
            "backoff's number of running threads varies twice as much as without it or more (standard deviations)",
            backoff.zip(none).map(|(one, other)| one / other.max(0.1)),
            2.0..=ANY,
        ),
        claim(
            "and 1.5 times as much as under load control or more",
            backoff.zip(control).map(|(one, other)| one / other.max(0.1)),
            1.5..=ANY,
        ),
        claim(
            "it strays 16 threads or more from the target of 32",
            counts("backoff").map(|counts| counts.iter().map(|count| (count - 32.0).abs()).fold(0.0, f64::max)),
            16.0..=ANY,
        ),
    ]
}

pub(super) fn asplos_8(results: &[Result]) -> Vec<Claim> {
    let reactions = results.iter().find_map(|result| match &result.measured {
        crate::experiment::Measured::Reactions(reactions) => Some(reactions),
        _ => None,
    });
    // What never came took for ever.
    let worst = |of: fn(&crate::experiment::Reaction) -> Option<u64>| {
        reactions.filter(|reactions| !reactions.is_empty()).map(|reactions| {
            reactions.iter().map(|reaction| of(reaction).map_or(ANY, |ns| ns as f64 / 1e3)).fold(0.0, f64::max)
        })
    };
    vec![
        claim("the first thread reacts within 60 us (paper: 30)", worst(|reaction| reaction.first_ns), 0.0..=60.0),
        claim(
            "the number is within a twentieth of what it should be after 400 us (paper: 200)",
            worst(|reaction| reaction.settled_ns),
            0.0..=400.0,
        ),
    ]
}

pub(super) fn asplos_9(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let ratio = |series: &str, x: f64| results.ratio("counter", (series, x), ("95 %", x));
    let gain = |x: f64| results.ratio("counter", ("150 %, load control", x), ("150 %", x));
    vec![
        claim("at 12 us 150 % load has at most .7 of 95 % without load control", ratio("150 %", 12.0), 0.0..=0.7),
        claim(
            "less contention, less loss: at 100 us a larger part of 95 % load than at 12 us",
            ratio("150 %", 100.0).zip(ratio("150 %", 12.0)).map(|(one, other)| one / other),
            1.0..=ANY,
        ),
        claim("with load control at least .8 of 95 % at 24 us", ratio("150 %, load control", 24.0), 0.8..=ANY),
        claim("and at 12 us 1.2 times what there is without or more", gain(12.0), 1.2..=ANY),
        claim(
            "load control does least for 12 us: a smaller part of 95 % load than at 24 us",
            ratio("150 %, load control", 12.0).zip(ratio("150 %, load control", 24.0)).map(|(one, other)| one / other),
            0.0..=1.0,
        ),
    ]
}

pub(super) fn asplos_10(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let ratio = |series: &str, one: f64, other: f64| results.ratio("TM-1", (series, one), (series, other));
    vec![
        claim("at 150 % load .5 ms is worse than 7 ms", ratio("150 %", 0.5, 7.0), 0.0..=0.98),
        claim("at 150 % load 100 ms is worse than 7 ms", ratio("150 %", 100.0, 7.0), 0.0..=0.98),
        claim("98 % load loses at most a tenth at 7 ms of what it has at 100 ms", ratio("98 %", 7.0, 100.0), 0.9..=ANY),
        claim(
            "a reading costs more the more threads there are: .5 ms costs 150 % load more than 98 %",
            ratio("150 %", 0.5, 7.0).zip(ratio("98 %", 0.5, 7.0)).map(|(one, other)| one / other),
            0.0..=0.99,
        ),
    ]
}

pub(super) fn asplos_11(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let mut claims = Vec::new();
    for panel in ["Raytrace", "TM-1"] {
        claims.extend([
            claim(
                &format!("{panel}: at 63 threads TP-MCS has 1.2 times what pthread has or more"),
                results.ratio(panel, ("TP-MCS", 63.0), ("pthread", 63.0)),
                1.2..=ANY,
            ),
            claim(
                &format!("{panel}: at 128 threads TP-MCS has lost .6 of its peak or more"),
                results.kept(panel, "TP-MCS", 128.0),
                0.0..=0.4,
            ),
            claim(
                &format!("{panel}: load control keeps .8 of its peak or more (paper: .85 to .92)"),
                results.kept(panel, "load control", 128.0),
                0.8..=1.0,
            ),
            claim(
                &format!("{panel}: load control has .95 of TP-MCS or more at 63 threads"),
                results.ratio(panel, ("load control", 63.0), ("TP-MCS", 63.0)),
                0.95..=ANY,
            ),
        ]);
    }
    claims.extend([
        claim(
            "Raytrace: one thread is at least a tenth slower with pthread than with TP-MCS",
            results.ratio("Raytrace", ("pthread", 1.0), ("TP-MCS", 1.0)),
            0.0..=0.9,
        ),
        claim(
            "TM-1: one thread is as fast with either, to a tenth",
            results.ratio("TM-1", ("pthread", 1.0), ("TP-MCS", 1.0)),
            0.9..=1.1,
        ),
        claim(
            "TPC-C: at 128 threads pthread has .9 of load control or more",
            results.ratio("TPC-C", ("pthread", 128.0), ("load control", 128.0)),
            0.9..=ANY,
        ),
        claim("TPC-C: TP-MCS holds .8 of its peak at 96 threads", results.kept("TPC-C", "TP-MCS", 96.0), 0.8..=1.0),
    ]);
    claims
}

pub(super) fn asplos_12(results: &[Result]) -> Vec<Claim> {
    let alone = Results(results).per_s("TM-1", "alone", 0.0);
    let shares = |series: &str, x: f64| {
        let found = results.iter().find(|result| result.series == series && result.x == x)?;
        match (&found.measured, alone) {
            (crate::experiment::Measured::Shares(shares), Some(alone)) => {
                Some((shares.own_per_s / alone, shares.other_per_s / alone))
            }
            _ => None,
        }
    };
    let last = Results(results).largest_x();
    vec![
        claim(
            "both under load control with 64 threads: .8 or more of what one has alone, together (paper: .85 to .9)",
            shares("with", 64.0).map(|(own, other)| own + other),
            0.8..=ANY,
        ),
        claim(
            "and a balance: self has .3 to .7 of both",
            shares("with", 64.0).map(|(own, other)| own / (own + other)),
            0.3..=0.7,
        ),
        claim(
            "against 192 threads without load control self keeps .2 to .5 (paper: about .35)",
            shares("without", last).map(|(own, _)| own),
            0.2..=0.5,
        ),
        claim("and other has less than self", shares("without", last).map(|(own, other)| other / own), 0.0..=1.0),
    ]
}

pub(super) fn damon_1(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let panel = "16 contexts";
    let against = |one: &str, other: &str, x: f64| results.ratio(panel, (one, x), (other, x));
    let mut claims: Vec<Claim> = ["mcs", "tpmcs", "yield", "schedctl"]
        .map(|lock| {
            claim(
                &format!("at 15 threads {lock} and pthread are alike, to a tenth"),
                against(lock, "pthread", 15.0),
                0.9..=1.1,
            )
        })
        .into();
    claims.extend([
        claim(
            "at 32 threads pthread is the best: 1.1 times schedctl or more",
            against("pthread", "schedctl", 32.0),
            1.1..=ANY,
        ),
        claim("schedctl is next: more than tpmcs", against("schedctl", "tpmcs", 32.0), 1.0..=ANY),
        claim("yielding makes tpmcs no better: at most 1.05 times", against("yield", "tpmcs", 32.0), 0.0..=1.05),
        claim("mcs freezes: at most .1 of its peak at 32 threads", results.kept(panel, "mcs", 32.0), 0.0..=0.1),
        claim("tpmcs falls: at most .6 of its peak at 32 threads", results.kept(panel, "tpmcs", 32.0), 0.0..=0.6),
        claim(
            "but less than mcs: 2 times its throughput or more at 32 threads",
            against("tpmcs", "mcs", 32.0),
            2.0..=ANY,
        ),
    ]);
    claims
}

pub(super) fn damon_2(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let panel = "64 contexts";
    let against = |one: &str, other: &str, x: f64| results.ratio(panel, (one, x), (other, x));
    vec![
        claim("pthread has its peak at 31 to 47 threads", results.peak_at(panel, "pthread"), 31.0..=47.0),
        claim(
            "at 63 threads tpmcs has 1.4 times what pthread has or more (paper: 2)",
            against("tpmcs", "pthread", 63.0),
            1.4..=ANY,
        ),
        claim("mcs freezes: at most .1 of its peak at 96 threads", results.kept(panel, "mcs", 96.0), 0.0..=0.1),
        claim("tpmcs falls: at most .6 of its peak at 96 threads", results.kept(panel, "tpmcs", 96.0), 0.0..=0.6),
        claim(
            "schedctl hardly helps: at most 1.3 times tpmcs at 96 threads",
            against("schedctl", "tpmcs", 96.0),
            0.0..=1.3,
        ),
        claim("yielding makes tpmcs no better: at most 1.05 times", against("yield", "tpmcs", 96.0), 0.0..=1.05),
    ]
}

pub(super) fn damon_3(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let against = |panel: &str, other: &str, x: f64| results.ratio(panel, ("backoff", x), (other, x));
    vec![
        claim(
            "64 contexts, 63 threads: backoff has .9 of tpmcs or more",
            against("64 contexts", "tpmcs", 63.0),
            0.9..=ANY,
        ),
        claim(
            "64 contexts, 128 threads: backoff has .8 of pthread or more",
            against("64 contexts", "pthread", 128.0),
            0.8..=ANY,
        ),
        claim("64 contexts, 128 threads: and more than tpmcs", against("64 contexts", "tpmcs", 128.0), 1.0..=ANY),
        claim(
            "16 contexts, 32 threads: backoff does not match pthread: at most .95",
            against("16 contexts", "pthread", 32.0),
            0.0..=0.95,
        ),
    ]
}

pub(super) fn damon_4(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let at = |series: &str, x: f64| results.at("TM-1", series, x);
    let used = |series: &str, x: f64| {
        at(series, x)
            .map(|outcome| (outcome.contexts.working + outcome.contexts.spinning + outcome.contexts.inverted) / 64.0)
    };
    let wasted = |series: &str, x: f64| at(series, x).map(|outcome| outcome.contexts.inverted / 64.0);
    vec![
        claim("tpmcs saturates the machine at 95 threads: .95 or more of it is used", used("tpmcs", 95.0), 0.95..=ANY),
        claim("most of that for preempted holders: .4 or more of the machine", wasted("tpmcs", 95.0), 0.4..=ANY),
        claim(
            "pthread uses at most .75 of the machine at 47 threads (paper: about .6)",
            used("pthread", 47.0),
            0.0..=0.75,
        ),
        claim(
            "and no more at 95 threads than at 47, to a tenth",
            used("pthread", 95.0).zip(used("pthread", 47.0)).map(|(one, other)| one / other),
            0.0..=1.1,
        ),
        claim(
            "backoff wastes at most half of what tpmcs does at 95 threads",
            wasted("backoff", 95.0).zip(wasted("tpmcs", 95.0)).map(|(one, other)| one / other),
            0.0..=0.5,
        ),
        claim(
            "and leaves contexts idle: at most .9 of the machine is used at 95 threads",
            used("backoff", 95.0),
            0.0..=0.9,
        ),
    ]
}

pub(super) fn sizes(results: &[Result]) -> Vec<Claim> {
    let results = Results(results);
    let (first, last) = (64.0, results.largest_x());
    // Of what it has on 64 contexts, for each context.
    let scaled = |panel: &str, series: &str| {
        results.ratio(panel, (series, last), (series, first)).map(|ratio| ratio * first / last)
    };
    let against = |one: &str, other: &str| {
        Some(results.per_s("load control", one, last)? / results.per_s("spinning", other, last)?)
    };
    vec![
        claim(
            "the default scales: on the largest machine .8 or more of what it has for each of 64 contexts",
            scaled("load control", "loiter"),
            0.8..=ANY,
        ),
        claim("TP-MCS under load control does: .8 or more", scaled("load control", "tpmcs"), 0.8..=ANY),
        claim(
            "at 400 % load load control gives TP-MCS 5 times the throughput or more",
            against("tpmcs", "tpmcs"),
            5.0..=ANY,
        ),
    ]
}
