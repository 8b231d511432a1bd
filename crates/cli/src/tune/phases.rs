//! Phases of a virtual machine: whether a gain depends on how far its processors are apart. Pure.
//!
//! A hypervisor moves virtual processors for seconds to minutes, and a cache line then takes ten
//! times as long from one to the other. Most runs of a round share a phase, so the differences
//! within rounds cancel what all configurations have in common. A pair's difference can itself
//! depend on the phase, though, and then a ratio over all rounds describes only the mixture of this
//! search. [`split`] therefore compares each phase on its own.

use unconvoy_measure::transfer::Distances;

use super::candidates::Stage;
use super::record::Record;
use super::verdict::{Comparison, Ratio};
use crate::messages::search as messages;

/// Fewer rounds of a phase show little.
const FEWEST: usize = 3;

/// A comparison in the rounds of one phase.
#[derive(Debug, Clone, Copy)]
struct Phase {
    rounds: usize,
    ratio: Ratio,
}

/// A remark, if the intervals of a comparison's ratios in the two phases have no common value.
pub fn remark(record: &Record) -> Option<String> {
    let verdict = record.verdict.as_ref()?;
    let first = [verdict.gain(), verdict.undecided.as_ref()].into_iter().flatten();
    first.chain(&verdict.comparisons).find_map(|comparison| {
        let [near, far] = split(record, comparison)?;
        let differ = near.ratio.low > far.ratio.high || far.ratio.low > near.ratio.high;
        let name = |index: usize| &*record.candidates[index].name;
        let against = name(comparison.against);
        let [near, far] = [near, far].map(|phase| (phase.ratio.times(against), phase.rounds));
        differ.then(|| messages::depends_on_distance(name(comparison.candidate), near, far))
    })
}

/// A comparison with near processors, and with far ones; `None` if they hardly moved, or if one of
/// the phases has too few rounds.
fn split(record: &Record, comparison: &Comparison) -> Option<[Phase; 2]> {
    let stage = Stage::Confirmation;
    let fresh = record.runs.iter().filter(|run| run.stage == stage);
    let distances = Distances::of(fresh.filter_map(|run| run.transfer_ns))?;
    let pair = [comparison.candidate, comparison.against];
    let differences = |wanted: bool| -> Vec<f64> {
        let rounds = 1..=record.rounds(stage);
        rounds
            .filter(|&round| {
                let runs = record.round(stage, round).filter(|run| pair.contains(&run.candidate));
                let mut sides = runs.map(|run| run.transfer_ns.map(|ns| distances.is_far(ns)));
                sides.all(|side| side == Some(wanted))
            })
            .filter_map(|round| {
                let [one, other] = pair.map(|it| record.score_of(stage, round, it));
                Some(one? - other?)
            })
            .collect()
    };
    let [near, far] = [false, true].map(|is_far| {
        let values = differences(is_far);
        let ratio = Ratio::of_differences(&values, record.plan.error_rate);
        ratio.filter(|_| values.len() >= FEWEST).map(|ratio| Phase { rounds: values.len(), ratio })
    });
    Some([near?, far?])
}

#[cfg(test)]
mod tests {
    use super::super::candidates::{DEFAULT, LIBC};
    use super::super::record::Run;
    use super::super::verdict::Verdict;
    use super::*;

    /// A search whose default has these ratios to libc, each in a round of runs before which a line
    /// moved in these times.
    fn record(rounds: &[(f64, [u32; 2])]) -> Record {
        let mut record = Record::of_a_server();
        for (round, (ratio, times)) in (1..).zip(rounds) {
            let runs = [(LIBC, 1.0, times[0]), (DEFAULT, *ratio, times[1])];
            record.runs.extend(runs.map(|(candidate, metric, ns)| Run {
                stage: Stage::Confirmation,
                round,
                candidate,
                threads: None,
                metric,
                wall_s: 1.0,
                transfer_ns: Some(ns),
            }));
        }
        let values = record.differences(Stage::Confirmation, rounds.len(), None, [DEFAULT, LIBC]);
        let comparison = Comparison::of([DEFAULT, LIBC], &[values], 0.05).unwrap();
        record.verdict = Some(Verdict::of(DEFAULT, rounds.len(), vec![comparison]));
        record
    }

    const NEAR: [u32; 2] = [25, 27];
    const FAR: [u32; 2] = [210, 220];

    #[test]
    fn gain_with_near_processors_only_is_reported_with_both_ratios() {
        let moved = [25, 210];
        let rounds = [
            (1.6, NEAR),
            (0.9, FAR),
            (1.7, NEAR),
            (1.0, FAR),
            (3.0, moved),
            (1.65, NEAR),
            (0.95, FAR),
        ];
        let text = remark(&record(&rounds)).unwrap();
        for part in ["1.65 times libc (1.", "in 3 rounds with near", "0.95 times libc (0."] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }

    #[test]
    fn phases_that_agree_or_have_few_rounds_need_no_remark() {
        let ratios = [1.6, 1.5, 1.7, 1.6, 1.5, 1.7];
        let alternating = (0..6).map(|it| (ratios[it], if it % 2 == 0 { NEAR } else { FAR }));
        assert_eq!(remark(&record(&alternating.collect::<Vec<_>>())), None);
        let steady = [(1.6, NEAR), (0.9, NEAR), (1.7, NEAR), (1.0, NEAR)];
        assert_eq!(remark(&record(&steady)), None);
        let few = [(1.6, NEAR), (1.7, NEAR), (1.6, NEAR), (0.9, FAR), (0.9, FAR)];
        assert_eq!(remark(&record(&few)), None);
    }
}
