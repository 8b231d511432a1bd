//! History of the last minutes.

use std::collections::VecDeque;

use crate::report::Report;

/// Number of reports kept, one per second.
const KEPT: usize = 300;

#[derive(Debug, Default)]
pub struct History {
    pub now: Report,
    pub before: Report,
    moments: VecDeque<Moment>,
    /// Number of reports ever added.
    seen: usize,
}

#[derive(Debug, Clone, Copy)]
struct Moment {
    bound: f64,
    /// `None` without votes.
    waiting: Option<f64>,
}

/// The last minutes in columns, the newest last. Each column is the mean of several reports.
#[derive(Debug, PartialEq)]
pub struct Columns {
    /// Reports per column; the newest column may have fewer.
    pub each: usize,
    pub bounds: Vec<f64>,
    /// The waiting share per column; `None` without votes.
    pub waiting: Vec<Option<f64>>,
}

impl History {
    pub fn add(&mut self, report: Report) {
        if self.moments.len() == KEPT {
            self.moments.pop_front();
        }
        let waiting = (report.votes > 0).then_some(report.waiting);
        self.moments.push_back(Moment { bound: report.bound.into(), waiting });
        self.seen += 1;
        self.before = std::mem::replace(&mut self.now, report);
    }

    pub fn is_empty(&self) -> bool {
        self.seen == 0
    }

    /// The history in at most `most` columns. A report never moves to another column, so that past
    /// columns do not flicker.
    pub fn columns(&self, most: usize) -> Columns {
        let each = KEPT.div_ceil(most.max(1));
        let first = self.seen - self.moments.len();
        let moments: Vec<_> = self
            .moments
            .iter()
            .enumerate()
            .map(|(at, &moment)| ((first + at) / each, moment))
            .collect();
        let mut columns: Vec<_> = moments.chunk_by(|one, other| one.0 == other.0).collect();
        columns.drain(..columns.len().saturating_sub(most));
        Columns {
            each,
            bounds: columns
                .iter()
                .filter_map(|column| mean(column.iter().map(|(_, moment)| moment.bound)))
                .collect(),
            waiting: columns
                .iter()
                .map(|column| mean(column.iter().filter_map(|(_, moment)| moment.waiting)))
                .collect(),
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0_u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(bounds: impl IntoIterator<Item = u32>) -> History {
        let mut history = History::default();
        for bound in bounds {
            history.add(Report {
                bound,
                votes: (bound % 2).into(),
                waiting: 0.5,
                ..Report::default()
            });
        }
        history
    }

    #[test]
    fn column_is_the_mean_of_known_values() {
        let columns = history([1, 3, 5, 2, 2, 2, 8]).columns(100);
        assert_eq!(columns.each, 3);
        assert_eq!(columns.bounds, [3.0, 2.0, 8.0]);
        assert_eq!(columns.waiting, [Some(0.5), None, None]);
    }

    #[test]
    fn past_columns_stay_when_a_report_is_added() {
        for seen in KEPT as u32..KEPT as u32 + 20 {
            let (now, next) = (history(0..seen).columns(70), history(0..=seen).columns(70));
            // The oldest column may drop out, and the newest is still filling, so neither is
            // compared.
            for mean in &now.bounds[2..now.bounds.len() - 1] {
                assert!(next.bounds.contains(mean), "{mean} after {seen}: {:?}", next.bounds);
            }
        }
    }

    #[test]
    fn columns_and_reports_are_limited() {
        for most in [0, 1, 7, 79, 299, 300, 1000] {
            let columns = history(0..1000).columns(most);
            assert!(columns.bounds.len() <= most.min(KEPT), "{most}: {}", columns.bounds.len());
            assert_eq!(columns.bounds.len(), columns.waiting.len());
        }
        assert_eq!(history(0..1000).columns(1000).bounds[0], 700.0);
        assert_eq!(history([]).columns(10).bounds, [0.0; 0]);
    }
}
