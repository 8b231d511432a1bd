//! A race of configurations: each round measures those that are left, until one is proven best or
//! no difference that matters can remain. Pure.
//!
//! A score is the logarithm of the metric, greater for better. Two configurations are compared by
//! the differences of their scores within each round, because they share the machine's drift.
//!
//! **Test.** Student's t and Wilcoxon's ranks of these differences, one-sided, at the looks of
//! [`sequential`](unconvoy_measure::sequential) (a group-sequential test). The level of one test is
//! the race's error rate, less [`HOPELESS_SHARE`], divided by the number of rivals and that of
//! looks.
//!
//! **Phases.** A virtual machine may be several times slower for a while. If it was so in all of
//! the few runs of a configuration, and in none of a rival's, their differences agree, and
//! Student's t believes them. These tests therefore assume at least a part of the pooled spread,
//! [`STEADIER`].
//!
//! **Hopeless configurations.** Three or four differences tell little about their own spread, so
//! neither test can drop even a configuration that collapses. The spread of all configurations
//! together is known much better. At the first looks, a configuration with less than
//! [`HOPELESS`] of a rival's metric is therefore also tested by this pooled spread, or by its own
//! if that is greater. These tests have a share of the error rate of their own.
//!
//! **Error rate.** A decided race chooses a configuration that is worse than the best by more than
//! [`WORTH`] only if a test of the best one against some rival errs: the best is dropped although
//! it is not worse, or the race stops although it is better than the leader by that much. For each
//! rival and look, the first of these implies the second if the rival is so much worse. So with K
//! configurations there are K - 1 events per look, and by Bonferroni's inequality the rate holds
//! whatever the number of configurations, whenever the race stops.

use unconvoy_measure::sequential::{Interval, LOOKS, centre, tail_below, tail_below_given};

/// A smaller relative gain is not worth a setting.
pub const WORTH: f64 = 0.02;

/// A pair of configurations may vary less than the others by this factor.
const STEADIER: f64 = 0.25;

/// A configuration below this part of a rival's metric is tested by the pooled spread.
const HOPELESS: f64 = 0.5;
/// The part of the error rate for these tests.
const HOPELESS_SHARE: f64 = 0.2;
/// The number of looks that make them; with more rounds, the usual tests are as sharp.
const HOPELESS_LOOKS: usize = 4;

/// Error rate of [`Race::seems_better`].
const SEEMS: f64 = 0.3;

/// A race with some configurations, numbered from 0.
#[derive(Debug, Clone)]
pub struct Race {
    error_rate: f64,
    racers: Vec<Racer>,
    rounds: usize,
}

#[derive(Debug, Clone)]
struct Racer {
    fate: Fate,
    /// Whether it may be chosen, as of the last look.
    is_eligible: bool,
    /// One per round until the configuration left.
    scores: Vec<f64>,
}

/// What became of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Running,
    /// It is worse than another one.
    Worse,
    /// A run failed or took too long.
    Withdrawn,
}

impl Race {
    pub fn new(configurations: usize, error_rate: f64) -> Self {
        let racer = Racer { fate: Fate::Running, is_eligible: true, scores: Vec::new() };
        Self { error_rate, racers: vec![racer; configurations], rounds: 0 }
    }

    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// The configurations that are left.
    pub fn running(&self) -> Vec<usize> {
        let all = 0..self.racers.len();
        all.filter(|&index| self.racers[index].fate == Fate::Running).collect()
    }

    /// Removes a configuration that cannot run.
    pub fn withdraw(&mut self, configuration: usize) {
        self.racers[configuration].fate = Fate::Withdrawn;
    }

    /// Adds a round: the score of each configuration that is left, by `score`. One that is not
    /// eligible does not remove one that is.
    pub fn add_round(&mut self, score: impl Fn(usize) -> f64, is_eligible: impl Fn(usize) -> bool) {
        let running = self.running();
        for &index in &running {
            self.racers[index].scores.push(score(index));
        }
        self.rounds += 1;
        if !LOOKS.contains(&self.rounds) {
            return;
        }
        for &index in &running {
            self.racers[index].is_eligible = is_eligible(index);
        }
        // All comparisons of a look see the same field.
        let pooled = self.pooled_spread(&running);
        let is_worse = |&&index: &&usize| {
            let is_eligible = |index: usize| self.racers[index].is_eligible;
            let may_remove = |rival: usize| is_eligible(rival) || !is_eligible(index);
            let mut rivals = running.iter().filter(|rival| **rival != index && may_remove(**rival));
            rivals.any(|&rival| {
                self.is_below(index, rival, 0.0, pooled) || self.is_hopeless(index, rival, pooled)
            })
        };
        let worse: Vec<usize> = running.iter().filter(is_worse).copied().collect();
        worse.into_iter().for_each(|index| self.racers[index].fate = Fate::Worse);
    }

    /// Whether one configuration is left, or none that is left is better than the leader by more
    /// than [`WORTH`]. Only eligible ones count, if there are any.
    pub fn is_decided(&self) -> bool {
        let running = self.running();
        if running.len() < 2 || !LOOKS.contains(&self.rounds) {
            return running.len() < 2;
        }
        let pooled = self.pooled_spread(&running);
        let has_eligible = running.iter().any(|&index| self.racers[index].is_eligible);
        let counts = |index: usize| self.racers[index].is_eligible || !has_eligible;
        let leader = self.leader(counts);
        let mut rivals =
            running.into_iter().filter(|&rival| counts(rival) && Some(rival) != leader);
        rivals.all(|rival| leader.is_some_and(|it| self.is_below(rival, it, WORTH.ln_1p(), pooled)))
    }

    /// Whether a further round decides nothing.
    pub fn is_over(&self) -> bool {
        self.is_decided() || LOOKS.last().is_some_and(|last| self.rounds >= *last)
    }

    /// The best so far of those that are left and pass `is_eligible`; the first of equals, because
    /// configurations are listed simplest first.
    pub fn leader(&self, is_eligible: impl Fn(usize) -> bool) -> Option<usize> {
        let running = self.running();
        let score = |index: usize| {
            let of_round = |round: usize| {
                let all = running.iter().map(|&other| self.racers[other].scores[round]);
                self.racers[index].scores[round] - all.sum::<f64>() / running.len() as f64
            };
            centre(&(0..self.rounds).map(of_round).collect::<Vec<_>>())
        };
        let eligible = running.iter().copied().filter(|&index| is_eligible(index));
        eligible.rev().max_by(|&a, &b| score(a).total_cmp(&score(b)))
    }

    /// The differences of two configurations' scores, `a` less `b`, in their common rounds.
    pub fn differences(&self, a: usize, b: usize) -> Vec<f64> {
        let pairs = self.racers[a].scores.iter().zip(&self.racers[b].scores);
        pairs.map(|(a, b)| a - b).collect()
    }

    /// Whether `a` is probably better than `b`, and not just the luckier one of equals; true if `b`
    /// was withdrawn.
    pub fn seems_better(&self, a: usize, b: usize) -> bool {
        self.racers[b].fate == Fate::Withdrawn
            || Interval::of(&self.differences(a, b), SEEMS).is_some_and(|it| it.low > 0.0)
    }

    /// Whether `a` is proven to be less than `margin` above `b`.
    fn is_below(&self, a: usize, b: usize, margin: f64, (spread, _): (f64, usize)) -> bool {
        let tests = (self.racers.len() - 1) * LOOKS.len();
        let level = self.error_rate * (1.0 - HOPELESS_SHARE) / tests as f64;
        tail_below(&self.differences(a, b), margin, STEADIER * spread) < level
    }

    /// Whether `a` is proven to be below `b`, and far below it, by the spread of all differences.
    fn is_hopeless(&self, a: usize, b: usize, (spread, freedom): (f64, usize)) -> bool {
        let differences = self.differences(a, b);
        let tests = (self.racers.len() - 1) * HOPELESS_LOOKS;
        let level = self.error_rate * HOPELESS_SHARE / tests as f64;
        LOOKS[..HOPELESS_LOOKS].contains(&self.rounds)
            && centre(&differences) < HOPELESS.ln()
            && tail_below_given(&differences, 0.0, spread, freedom) < level
    }

    /// The standard deviation of a difference, pooled over the configurations `running`, and its
    /// degrees of freedom: what remains of the scores without the means of rounds and of
    /// configurations.
    fn pooled_spread(&self, running: &[usize]) -> (f64, usize) {
        let (rounds, count) = (self.rounds as f64, running.len() as f64);
        let of_round = |round: usize| {
            running.iter().map(|&index| self.racers[index].scores[round]).sum::<f64>() / count
        };
        let round_means: Vec<f64> = (0..self.rounds).map(of_round).collect();
        let mean = round_means.iter().sum::<f64>() / rounds;
        let squares = running.iter().map(|&index| {
            let scores = &self.racers[index].scores;
            let own = scores.iter().sum::<f64>() / rounds;
            let rests = scores.iter().zip(&round_means).map(|(score, of)| score - of - own + mean);
            rests.map(|rest| rest * rest).sum::<f64>()
        });
        let freedom = (self.rounds - 1) * (running.len() - 1);
        let variance = squares.sum::<f64>() / freedom.max(1) as f64;
        ((2.0 * variance).sqrt(), freedom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    /// Noise of one run of a round.
    type Noise<'a> = &'a dyn Fn(&mut Rng, usize) -> f64;

    fn normal(random: &mut Rng) -> f64 {
        let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
        radius * (std::f64::consts::TAU * random.f64()).cos()
    }

    /// How a race of configurations with these true gains ends: the choice, if the race is decided
    /// within `most` rounds, and the number of runs.
    fn run(
        random: &mut Rng,
        gains: &[f64],
        noise: &dyn Fn(&mut Rng, usize) -> f64,
        most: usize,
        error_rate: f64,
    ) -> (Option<usize>, usize) {
        let mut race = Race::new(gains.len(), error_rate);
        let mut runs = 0;
        while race.rounds() < most && !race.is_decided() {
            runs += race.running().len();
            let drift = 0.3 * normal(random);
            let scores: Vec<f64> = (0..gains.len())
                .map(|index| gains[index].ln_1p() + drift + noise(random, index))
                .collect();
            race.add_round(|index| scores[index], |_| true);
        }
        (race.is_decided().then(|| race.leader(|_| true)).flatten(), runs)
    }

    /// The part of simulated races that choose wrongly, the part that are decided, and the mean
    /// number of runs.
    fn simulate(
        gains: &[f64],
        noise: &dyn Fn(&mut Rng, usize) -> f64,
        error_rate: f64,
    ) -> (f64, f64, f64) {
        let mut random = Rng::with_seed(7);
        let best = gains.iter().copied().fold(f64::MIN, f64::max);
        let races = 400;
        let (mut wrong, mut decided, mut runs) = (0, 0, 0);
        for _ in 0..races {
            let (choice, count) = run(&mut random, gains, noise, 32, error_rate);
            runs += count;
            decided += u32::from(choice.is_some());
            let is_wrong =
                choice.is_some_and(|c| (1.0 + best) / (1.0 + gains[c]) > 1.0 + WORTH + 1e-9);
            wrong += u32::from(is_wrong);
        }
        let part = |count: u32| f64::from(count) / f64::from(races);
        (part(wrong), part(decided), runs as f64 / f64::from(races))
    }

    #[test]
    fn race_chooses_wrongly_at_most_at_the_error_rate() {
        let even = |random: &mut Rng, _: usize| 0.05 * normal(random);
        let uneven = |random: &mut Rng, index: usize| 0.02 * (index + 1) as f64 * normal(random);
        let disturbed = |random: &mut Rng, _: usize| {
            let slow = if random.f64() < 0.05 { 0.6 * random.f64() } else { 0.0 };
            0.03 * normal(random) - slow
        };
        let noises: [(&str, Noise); 4] =
            [("even", &even), ("uneven", &uneven), ("disturbed", &disturbed), ("phased", &phased)];
        let near = [0.0, 0.021, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let mixed = [0.0, 0.05, 0.08, 0.1, -0.1, -0.5, 0.03, 0.06];
        for (name, noise) in noises {
            for gains in [near, mixed] {
                for error_rate in [0.05 / 3.0, 0.05, 0.3] {
                    let (wrong, decided, runs) = simulate(&gains, noise, error_rate);
                    println!("{name}, {error_rate}: wrong {wrong}, decided {decided}, {runs} runs");
                    assert!(wrong <= error_rate, "{name}: {wrong} of {error_rate}");
                }
            }
        }
    }

    #[test]
    fn clear_winner_is_found_in_few_rounds() {
        let noise = |random: &mut Rng, _: usize| 0.03 * normal(random);
        let gains = [0.0, 0.0, 0.5, -0.3, -0.5, 0.1, 0.05, -0.2];
        let (wrong, decided, runs) = simulate(&gains, &noise, 0.05);
        assert!(wrong < 0.01 && decided > 0.99, "{wrong} {decided}");
        // Without dropping, 32 rounds are 256 runs.
        assert!(runs < 60.0, "{runs}");
    }

    /// A configuration that collapses, with a spread as wide as its loss, beside steady ones.
    #[test]
    fn hopeless_configuration_leaves_at_the_first_look() {
        let mut random = Rng::with_seed(3);
        let rounds_of_hopeless = |random: &mut Rng| {
            let mut race = Race::new(12, 0.05);
            while race.running().contains(&11) && race.rounds() < 12 {
                let scores: Vec<f64> = (0..12)
                    .map(|index| {
                        if index == 11 {
                            0.02_f64.ln() + 0.5 * normal(random)
                        } else {
                            0.05 * normal(random)
                        }
                    })
                    .collect();
                race.add_round(|index| scores[index], |_| true);
            }
            race.rounds()
        };
        let rounds: Vec<usize> = (0..200).map(|_| rounds_of_hopeless(&mut random)).collect();
        let first = rounds.iter().filter(|rounds| **rounds == LOOKS[0]).count();
        assert!(first >= 190, "{first} of 200; {rounds:?}");
    }

    /// `clh+yield` in recorded searches on a virtual machine, by millions of operations per second.
    #[test]
    fn recorded_hopeless_configurations_leave_at_the_first_look() {
        let counter = [
            [4.764, 8.107, 7.442, 6.633, 3.621, 7.792, 0.207],
            [4.540, 8.184, 7.529, 6.537, 4.493, 7.897, 0.081],
            [7.469, 8.298, 7.684, 6.219, 3.682, 7.794, 0.292],
        ];
        let table = [
            [8.833, 6.603, 7.293, 6.567, 5.457, 9.534, 2.285],
            [8.663, 10.055, 8.632, 7.975, 9.739, 7.479, 0.627],
            [9.546, 10.093, 10.264, 11.620, 12.096, 10.961, 0.906],
        ];
        for rounds in [counter, table] {
            let mut race = Race::new(7, 0.05 / 3.0);
            for rates in rounds {
                race.add_round(|index| f64::ln(rates[index]), |_| true);
            }
            assert_eq!(race.running(), (0..6).collect::<Vec<_>>());
        }
    }

    /// `elided`, and `elided` with an entry that gains nothing, in a recorded search, by thousands
    /// of operations per second.
    #[test]
    fn luckier_one_of_equals_does_not_seem_better() {
        let rates = [
            [606.0, 656.0],
            [714.0, 723.0],
            [667.0, 676.0],
            [558.0, 691.0],
            [688.0, 668.0],
            [711.0, 669.0],
            [711.0, 679.0],
        ];
        let mut race = Race::new(3, 0.05 / 3.0);
        for [plain, entry] in rates {
            let better: f64 = 1.05 * entry;
            race.add_round(|index| [plain, entry, better][index].ln(), |_| true);
        }
        assert_eq!(race.leader(|index| index < 2), Some(1));
        assert!(!race.seems_better(1, 0) && race.seems_better(2, 0));
        race.withdraw(0);
        assert!(race.seems_better(1, 0));
    }

    /// Half of the runs are slow, as on a virtual machine whose processors move.
    fn phased(random: &mut Rng, _: usize) -> f64 {
        0.01 * normal(random) - if random.bool() { 1.1 } else { 0.0 }
    }

    /// The best configuration has runs that are slow, or a wide spread of its own, or is in another
    /// phase than its rivals: none of this may drop it more often than the error rate allows.
    #[test]
    fn unsteady_best_configuration_is_seldom_dropped() {
        let wide =
            |random: &mut Rng, index: usize| (if index == 1 { 0.6 } else { 0.03 }) * normal(random);
        let slow = |random: &mut Rng, index: usize| {
            let is_slow = index == 1 && random.f64() < 0.3;
            0.05 * normal(random) - if is_slow { 1.5 } else { 0.0 }
        };
        let noises: [(&str, Noise); 3] = [("wide", &wide), ("slow", &slow), ("phased", &phased)];
        for (name, noise) in noises {
            let mut random = Rng::with_seed(11);
            let dropped = (0..2000).filter(|_| {
                let mut race = Race::new(8, 0.05);
                for _ in 0..LOOKS[HOPELESS_LOOKS - 1] {
                    let scores: Vec<f64> = (0..8).map(|it| noise(&mut random, it)).collect();
                    race.add_round(|index| scores[index], |_| true);
                }
                !race.running().contains(&1)
            });
            let part = dropped.count() as f64 / 2000.0;
            println!("{name}: {part}");
            assert!(part <= 0.05, "{name}: {part}");
        }
    }

    #[test]
    fn equals_end_the_race_undropped_and_the_simplest_leads() {
        let mut race = Race::new(3, 0.05);
        for round in 0..8 {
            let drift = f64::from(round % 3);
            race.add_round(|_| drift, |_| true);
        }
        assert!(race.is_decided());
        assert_eq!((race.running().len(), race.leader(|_| true)), (3, Some(0)));
        assert_eq!(race.leader(|index| index > 0), Some(1));
    }

    #[test]
    fn withdrawn_configuration_never_leads() {
        let mut race = Race::new(2, 0.05);
        race.add_round(|index| index as f64, |_| true);
        race.withdraw(1);
        race.add_round(|_| 0.0, |_| true);
        assert_eq!((race.leader(|_| true), race.running()), (Some(0), vec![0]));
        assert!(race.is_decided());
        assert_eq!(race.differences(1, 0), [1.0]);
    }

    /// The default, which lost to libc with 2 threads, removed what lost nowhere.
    #[test]
    fn one_that_loses_somewhere_does_not_remove_one_that_loses_nowhere() {
        let field = |is_eligible: fn(usize) -> bool| {
            let mut race = Race::new(4, 0.05);
            for noise in [0.1, -0.1].repeat(4) {
                let scores = [0.0, 2.0, 1.0 + noise, 1.0 - noise];
                race.add_round(|index| scores[index], is_eligible);
            }
            (race.running(), race.is_decided())
        };
        assert_eq!(field(|_| true), (vec![1], true));
        // Which of the two eligible ones is better is open.
        assert_eq!(field(|index| index != 1), (vec![1, 2, 3], false));
    }
}
