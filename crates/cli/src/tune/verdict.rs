//! What the confirmation says: the recommendation, and one sentence. Pure.
//!
//! Only fresh runs count, whose number is fixed before the first of them, so that the intervals
//! hold. The simpler of two configurations is recommended unless the other is better by
//! more than [`WORTH`], with an interval above 1.

use serde::{Deserialize, Deserializer, Serialize};
use unconvoy_measure::arguments::thread_count;
use unconvoy_measure::sequential::Interval;

use super::candidates::{DEFAULT, LIBC};
use super::race::WORTH;

/// A strategy keeps at least this part of the simpler ones' speed at each thread count.
pub const LEAST: f64 = 0.98;

/// How many times as good as another configuration one is, with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub ratio: f64,
    pub low: f64,
    /// Infinite with two values and a small error rate, which JSON writes as null.
    #[serde(deserialize_with = "infinite_if_null")]
    pub high: f64,
}

fn infinite_if_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

/// Two candidates, compared in the confirmation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Indices in the candidates.
    pub candidate: usize,
    pub against: usize,
    /// The geometric mean over the thread counts.
    pub whole: Ratio,
    /// The geometric mean over the rounds, which single bad ones move; `whole` resists them.
    #[serde(default)]
    pub mean: Option<f64>,
    /// By thread count, in the plan's order.
    pub by_threads: Vec<Ratio>,
    /// Number of rounds after which the interval would reach 2 % to each side.
    pub rounds_for_worth: usize,
}

/// The result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Index of the recommended candidate.
    pub recommended: usize,
    /// Number of fresh rounds.
    pub rounds: usize,
    pub comparisons: Vec<Comparison>,
    /// The comparison that is neither a proven gain nor proven to be none that matters: over all
    /// thread counts, or at one if libc is recommended.
    pub undecided: Option<Comparison>,
    /// If nothing is recommended, the best proven gain over libc, by a candidate that loses at some
    /// thread count.
    #[serde(default)]
    pub mixed: Option<Comparison>,
}

impl Ratio {
    /// The ratio in these differences of scores; `None` with fewer than two.
    pub fn of_differences(values: &[f64], error_rate: f64) -> Option<Self> {
        Interval::of(values, error_rate).map(Self::of)
    }

    fn of(logarithms: Interval) -> Self {
        let Interval { centre, low, high, .. } = logarithms;
        Ratio { ratio: centre.exp(), low: low.exp(), high: high.exp() }
    }

    /// "1.84 times libc (1.71 to 1.97)".
    pub fn times(&self, what: &str) -> String {
        format!("{:.2} times {what} ({:.2} to {:.2})", self.ratio, self.low, self.high)
    }

    /// "1.84 (1.71 to 1.97)".
    pub fn text(&self) -> String {
        format!("{:.2} ({:.2} to {:.2})", self.ratio, self.low, self.high)
    }

    fn is_gain(&self) -> bool {
        self.ratio > 1.0 + WORTH && self.low > 1.0
    }

    /// Whether a loss that matters is likely.
    fn seems_loss(&self) -> bool {
        self.ratio < LEAST
    }

    /// Whether a loss that matters is likely, and some loss is proven.
    pub fn is_loss(&self) -> bool {
        self.seems_loss() && self.high < 1.0
    }

    /// Whether a gain that matters is possible, but not proven.
    fn is_open(&self) -> bool {
        self.high > 1.0 + WORTH && !self.is_gain()
    }
}

impl Comparison {
    /// Compares by the differences of the scores: one list per thread count, one value per round.
    /// `None` with fewer than two rounds.
    pub fn of(
        [candidate, against]: [usize; 2],
        differences: &[Vec<f64>],
        error_rate: f64,
    ) -> Option<Self> {
        let each = differences.iter().map(|values| Interval::of(values, error_rate));
        let each = each.collect::<Option<Vec<Interval>>>()?;
        let rounds = differences.iter().map(Vec::len).min()?;
        let mean = |round: usize| {
            let all: f64 = differences.iter().map(|values| values[round]).sum();
            all / differences.len() as f64
        };
        let means: Vec<f64> = (0..rounds).map(mean).collect();
        let whole = Interval::of(&means, error_rate)?;
        Some(Comparison {
            candidate,
            against,
            whole: Ratio::of(whole),
            mean: Some((means.iter().sum::<f64>() / rounds as f64).exp()),
            by_threads: each.into_iter().map(Ratio::of).collect(),
            rounds_for_worth: whole.count_for(WORTH.ln_1p()),
        })
    }

    fn is_gain(&self) -> bool {
        self.whole.is_gain() && !self.collapses() && !self.by_threads.iter().any(Ratio::seems_loss)
    }

    /// Whether most runs gain, but the others lose more.
    pub fn collapses(&self) -> bool {
        self.whole.is_gain() && self.mean.is_some_and(|mean| mean <= 1.0)
    }

    /// Whether the gain over all thread counts is proven, but not that it loses at none.
    pub fn is_partial(&self) -> bool {
        self.whole.is_gain() && !self.collapses() && !self.is_gain()
    }

    /// Whether it loses at some thread count.
    fn loses_somewhere(&self) -> bool {
        self.by_threads.iter().any(Ratio::is_loss)
    }
}

impl Verdict {
    /// Decides by the comparisons of the default with libc, and of the best with both.
    pub fn of(best: usize, rounds: usize, comparisons: Vec<Comparison>) -> Self {
        let find = |candidate: usize, against: usize| {
            comparisons.iter().find(|it| (it.candidate, it.against) == (candidate, against))
        };
        let against_libc = find(best, LIBC);
        let gains = |it: Option<&Comparison>| it.is_some_and(Comparison::is_gain);
        let default_gains = gains(find(DEFAULT, LIBC));
        let default_loses = find(DEFAULT, LIBC).is_some_and(Comparison::loses_somewhere);
        // The best must beat a default that gains, and must not be slower than one that does not.
        // A default that loses to libc somewhere is no choice.
        let is_ahead = match find(best, DEFAULT) {
            Some(it) if default_gains => it.is_gain(),
            Some(_) if default_loses => true,
            it => it.is_none_or(|it| it.whole.ratio >= LEAST),
        };
        let best_gains = best > DEFAULT && gains(against_libc) && is_ahead;
        let recommended = match (best_gains, default_gains) {
            (true, _) => best,
            (false, true) => DEFAULT,
            (false, false) => LIBC,
        };
        // Open: another candidate may gain over the recommended one, or over libc.
        let rivals = [(best, recommended), (best, LIBC), (DEFAULT, recommended)];
        let open = rivals.into_iter().filter(|(one, other)| one != other && *one != recommended);
        let open = open.filter_map(|(one, other)| find(one, other));
        let undecided = open.into_iter().find(|it| it.whole.is_open() || it.collapses()).cloned();
        // Gains that are none at some thread count: the loss there is proven, or only likely.
        let is_partial =
            |it: &&Comparison| recommended == LIBC && it.against == LIBC && it.is_partial();
        let best_partial = |is_proven: bool| {
            let partial = comparisons.iter().filter(is_partial);
            let partial = partial.filter(|it| it.loses_somewhere() == is_proven);
            partial.max_by(|a, b| a.whole.ratio.total_cmp(&b.whole.ratio)).cloned()
        };
        // Before a comparison of others that is merely noisy.
        let undecided = best_partial(false).or(undecided);
        let mixed = best_partial(true);
        Verdict { recommended, rounds, comparisons, undecided, mixed }
    }

    /// The recommended candidate against libc; `None` if that is libc.
    pub fn gain(&self) -> Option<&Comparison> {
        let mut all = self.comparisons.iter();
        all.find(|it| (it.candidate, it.against) == (self.recommended, LIBC))
    }

    /// The result in one sentence. `costs` says what the locks cost, `remedy` what the recommended
    /// candidate does, and `name` is that of a candidate.
    pub fn sentence(
        &self,
        file: &str,
        threads: &[Option<u32>],
        costs: &str,
        remedy: &str,
        name: impl Fn(usize) -> String,
    ) -> String {
        let each = |gain: &Comparison| {
            let counts = threads.iter().zip(&gain.by_threads).filter_map(|(threads, ratio)| {
                let found = match ratio.seems_loss() {
                    true => ratio.text(),
                    false => format!("{:.2}", ratio.ratio),
                };
                Some(format!("{found} with {}", thread_count((*threads)?)))
            });
            counts.collect::<Vec<_>>()
        };
        if let Some(gain) = self.gain() {
            let each = match each(gain) {
                each if each.len() < 2 => String::new(),
                each => format!("; {}", each.join(", ")),
            };
            return format!("With {file}: {}, from {remedy}{each}", gain.whole.times("libc"));
        }
        match (&self.undecided, &self.mixed) {
            (Some(open), _) if open.is_partial() => format!(
                "Undecided: {} is {}, but perhaps slower at one thread count: {}; {costs}",
                name(open.candidate),
                open.whole.times("libc"),
                each(open).join(", ")
            ),
            (Some(open), _) if open.collapses() => format!(
                "Undecided: {} is {} in most runs, but {:.2} times on average: some runs are far \
                 slower; {costs}",
                name(open.candidate),
                open.whole.times(&name(open.against)),
                open.mean.unwrap_or_default()
            ),
            (_, Some(mixed)) => format!(
                "Nothing found that helps at every thread count: {} is {}, {}; {costs}",
                name(mixed.candidate),
                mixed.whole.times("libc"),
                each(mixed).join(", ")
            ),
            (Some(open), None) => format!(
                "Undecided: {} is {}, so a gain of 2 % is neither proven nor excluded; {costs}",
                name(open.candidate),
                open.whole.times(&name(open.against))
            ),
            (None, None) => format!("Nothing found that helps by more than 2 %: {costs}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A comparison with these ratios by round and one thread count each.
    fn comparison(pair: [usize; 2], ratios: &[[f64; 5]]) -> Comparison {
        let logs: Vec<Vec<f64>> =
            ratios.iter().map(|rounds| rounds.iter().map(|ratio| ratio.ln()).collect()).collect();
        Comparison::of(pair, &logs, 0.05).unwrap()
    }

    const GAIN: [f64; 5] = [1.8, 1.9, 1.84, 1.7, 1.95];
    const NONE: [f64; 5] = [1.0, 1.01, 0.99, 1.0, 1.005];
    const NOISE: [f64; 5] = [1.4, 0.8, 1.3, 0.9, 1.1];

    fn verdict(best_libc: &[f64; 5], best_default: &[f64; 5], default_libc: &[f64; 5]) -> Verdict {
        let comparisons = vec![
            comparison([2, LIBC], &[*best_libc]),
            comparison([2, DEFAULT], &[*best_default]),
            comparison([DEFAULT, LIBC], &[*default_libc]),
        ];
        Verdict::of(2, 5, comparisons)
    }

    fn sentence(verdict: &Verdict, threads: &[Option<u32>]) -> String {
        let name = |candidate: usize| ["libc", "default", "elided"][candidate].to_string();
        let costs = "the locks cost 0.4 % of the time";
        verdict.sentence("server.toml", threads, costs, "eliding `cache_lock`", name)
    }

    #[test]
    fn interval_without_upper_end_is_read_back() {
        let wide = Ratio::of_differences(&[-0.3, 0.3], 0.0001).unwrap();
        assert_eq!(wide.high, f64::INFINITY);
        let text = serde_json::to_string(&wide).unwrap();
        assert_eq!(serde_json::from_str::<Ratio>(&text).unwrap(), wide);
    }

    #[test]
    fn sentence_states_gain_with_interval_and_remedy() {
        let verdict = verdict(&GAIN, &GAIN, &NONE);
        assert_eq!((verdict.recommended, &verdict.undecided), (2, &None));
        assert_eq!(
            sentence(&verdict, &[None]),
            "With server.toml: 1.84 times libc (1.72 to 1.96), from eliding `cache_lock`"
        );
    }

    #[test]
    fn sentence_has_each_thread_count() {
        let gain = |pair| comparison(pair, &[GAIN, [1.0, 1.02, 1.01, 1.0, 1.01]]);
        let comparisons = vec![gain([2, LIBC]), gain([2, DEFAULT])];
        let verdict = Verdict::of(2, 5, comparisons);
        let sentence = sentence(&verdict, &[Some(2), Some(8)]);
        assert!(sentence.ends_with("; 1.84 with 2 threads, 1.01 with 8 threads"), "{sentence}");
    }

    #[test]
    fn simpler_is_recommended_without_proven_gain() {
        assert_eq!(verdict(&GAIN, &NONE, &GAIN).recommended, DEFAULT);
        assert_eq!(verdict(&NONE, &NONE, &NONE).recommended, LIBC);
        assert_eq!(verdict(&GAIN, &NOISE, &NONE).recommended, 2);
        let text = sentence(&verdict(&NONE, &NONE, &NONE), &[None]);
        assert_eq!(
            text,
            "Nothing found that helps by more than 2 %: the locks cost 0.4 % of the time"
        );
    }

    #[test]
    fn loss_at_one_thread_count_is_not_recommended() {
        let mixed = |pair| comparison(pair, &[GAIN, [0.95, 0.96, 0.95, 0.97, 0.96]]);
        let none = comparison([DEFAULT, LIBC], &[NONE, NONE]);
        let verdict = Verdict::of(2, 5, vec![mixed([2, LIBC]), mixed([2, DEFAULT]), none]);
        assert_eq!(verdict.recommended, LIBC);
        let text = sentence(&verdict, &[Some(2), Some(8)]);
        let start = "Nothing found that helps at every thread count: elided is 1.33 times libc (";
        assert!(text.starts_with(start), "{text}");
        let end = "), 1.84 with 2 threads, 0.96 (0.95 to 0.97) with 8 threads; the locks";
        assert!(text.contains(end), "{text}");
    }

    /// Noise at one thread count ended in "Nothing found".
    #[test]
    fn loss_that_is_not_proven_is_undecided() {
        let noisy = |pair| comparison(pair, &[GAIN, [0.8, 1.15, 0.95, 0.9, 1.05]]);
        let none = comparison([DEFAULT, LIBC], &[NONE, NONE]);
        let verdict = Verdict::of(2, 5, vec![noisy([2, LIBC]), noisy([2, DEFAULT]), none]);
        assert_eq!((verdict.recommended, &verdict.mixed), (LIBC, &None));
        let text = sentence(&verdict, &[Some(2), Some(8)]);
        assert!(text.starts_with("Undecided: elided is 1.33 times libc ("), "{text}");
        assert!(text.contains("0.96 (0.81 to 1.14) with 8 threads; the locks"), "{text}");
    }

    #[test]
    fn gain_of_most_runs_is_none_if_the_others_collapse() {
        let collapsing: Vec<f64> = (0..90)
            .map(|round: usize| if round.is_multiple_of(6) { 0.125 } else { 1.08 })
            .collect();
        let logs = vec![collapsing.iter().map(|ratio: &f64| ratio.ln()).collect()];
        let of = |pair| Comparison::of(pair, &logs, 0.05).unwrap();
        assert!(of([2, LIBC]).whole.is_gain(), "the centre resists a sixth of the runs");
        let none = comparison([DEFAULT, LIBC], &[NONE]);
        let verdict = Verdict::of(2, 90, vec![of([2, LIBC]), of([2, DEFAULT]), none]);
        assert_eq!(verdict.recommended, LIBC);
        let text = sentence(&verdict, &[None]);
        assert!(text.contains("in most runs, but 0.75 times on average"), "{text}");
    }

    /// The default's noise hid what another candidate gained.
    #[test]
    fn likely_loss_of_a_gain_is_named_before_noise_of_others() {
        let noisy = |pair| comparison(pair, &[GAIN, [0.8, 1.15, 0.95, 0.9, 1.05]]);
        let noise = comparison([DEFAULT, LIBC], &[NOISE, NOISE]);
        let verdict = Verdict::of(2, 5, vec![noisy([2, LIBC]), noisy([2, DEFAULT]), noise]);
        assert_eq!(verdict.undecided.map(|it| it.candidate), Some(2));
    }

    #[test]
    fn best_need_not_beat_a_default_that_loses_or_failed() {
        let lossy = comparison([DEFAULT, LIBC], &[GAIN, [0.95, 0.96, 0.95, 0.97, 0.96]]);
        let gain = comparison([2, LIBC], &[GAIN, NONE]);
        let equal = comparison([2, DEFAULT], &[NONE, [1.04, 1.03, 1.05, 1.04, 1.04]]);
        assert_eq!(Verdict::of(2, 5, vec![lossy.clone(), gain.clone(), equal]).recommended, 2);
        let slower = comparison([2, DEFAULT], &[[0.9, 0.91, 0.9, 0.89, 0.9], NONE]);
        assert_eq!(Verdict::of(2, 5, vec![lossy, gain.clone(), slower.clone()]).recommended, 2);
        let equal = comparison([DEFAULT, LIBC], &[NONE, NONE]);
        assert_eq!(Verdict::of(2, 5, vec![equal, gain.clone(), slower]).recommended, LIBC);
        assert_eq!(Verdict::of(2, 5, vec![gain]).recommended, 2);
    }

    #[test]
    fn gain_of_about_two_percent_is_undecided() {
        let close = [1.01, 1.028, 1.015, 1.022, 1.02];
        let verdict = verdict(&close, &close, &NONE);
        assert_eq!(verdict.recommended, LIBC);
        assert!(sentence(&verdict, &[None]).starts_with("Undecided: elided is 1.02 times libc ("));
    }

    #[test]
    fn noise_is_undecided_and_says_how_many_rounds_it_takes() {
        let verdict = verdict(&NOISE, &NOISE, &NONE);
        let open = verdict.undecided.clone().expect("undecided");
        assert!(open.rounds_for_worth > 300, "{}", open.rounds_for_worth);
        let text = sentence(&verdict, &[None]);
        assert!(text.starts_with("Undecided: elided is 1.08 times libc ("), "{text}");
    }
}
