//! Figure 5: execution time with transactions, projected and simulated.

use super::programs::{CHANGES, PROGRAMS, at, of, plan, projected, published_plan};
use crate::claim::{Claim, claims};
use crate::figure::{Figure, Made, Paper, Simulated};
use crate::view::{Lines, Quantity};
use unconvoy_sim::experiment::Projection;
use unconvoy_sim::grid::Result;

pub const SIMULATED: Figure = Figure {
    name: "sim-syncchar-5",
    paper: Paper::Syncchar(5),
    title: "Execution time with transactions, projected and simulated",
    remark: "Paper: Porter, Hofmann, Witchel, Predicting and Tuning the Performance of Multicore \
        Systems, 2008, section 5, Figure 5; Prob, RW and RB-Tree with 32 threads on 8, 16 and 32 \
        processors of 1 GHz. The mean error is 10 %. Predictions are slightly conservative. \
        Prob's time at 32 processors is predicted 31 % too long, because transactions take no \
        cache misses on the lock.",
    minutes: 1,
    made: Made::Simulated(Simulated {
        plan,
        claims,
        across: "processors",
        panels,
        changes: CHANGES,
        ..Simulated::MEDIANS
    }),
};

/// The figure with the locks of the paper's kernel.
pub const PUBLISHED: Figure = Figure {
    name: "sim-syncchar-5-published",
    paper: Paper::Syncchar(5),
    title: "Execution time with transactions, projected and simulated, with the paper's locks",
    remark: "Paper: Porter, Hofmann, Witchel, 2008, section 5, Figure 5; Prob, RW and RB-Tree \
        with 32 threads on 8, 16 and 32 processors under test-and-set locks. The \
        mean error is 10 %, and 31 % for Prob at 32 processors.",
    minutes: 1,
    made: Made::Simulated(Simulated {
        plan: published_plan,
        claims,
        across: "processors",
        panels,
        ..Simulated::MEDIANS
    }),
};

const TIMES: [Quantity<Projection>; 2] = [
    ("projected", |projection| projection.projected_ns() / 1e6),
    ("transactions", |projection| projection.transacted_ns / 1e6),
];

fn panels(results: &[Result]) -> Vec<Lines> {
    projected(results, "execution time, ms", &TIMES)
}

fn mean_error<'a>(projections: impl Iterator<Item = &'a Projection>) -> Option<f64> {
    let (count, sum) =
        projections.fold((0, 0.0), |(count, sum), next| (count + 1, sum + next.error().abs()));
    (count > 0).then(|| sum / f64::from(count))
}

fn claims(results: &[Result]) -> Vec<Claim> {
    let all = results.iter().filter_map(|result| result.measured.projection());
    let mut claims = claims! {
        "the mean error is at most .1 (paper: .1)", mean_error(all), 0.0..=0.1;
    };
    for (name, _) in PROGRAMS {
        let of_program = of(results, name);
        let error = mean_error(of_program.iter().map(|place| place.1));
        let falls =
            of_program.windows(2).map(|pair| pair[1].1.projected_ns() / pair[0].1.projected_ns());
        claims.extend(claims! {
            format!("{name}: the mean error is at most .15"), error, 0.0..=0.15;
        });
        claims.extend(claims! {
            format!("{name}: doubling the processors cuts the projected time by at least .05"),
                falls.reduce(f64::max), 0.0..=0.95;
        });
    }
    claims.extend(claims! {
        "Prob: at 32 processors the projected time is .15 to .45 too long (paper: .31)",
            at(results, "Prob", 32.0).map(Projection::error), 0.15..=0.45;
    });
    claims
}
