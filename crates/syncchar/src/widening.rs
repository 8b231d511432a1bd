//! The windows of one lock and one number of processors n, wide enough for threads that take turns.
//!
//! In the paper, a window closes with sections of n threads, or with 512 sections of fewer (section
//! 4.2). If each thread takes a lock thousands of times in a row, one thread fills such a window
//! alone, and pairs of sections that may conflict are never compared. The speed-up predicted for a
//! hash table came out 64 % too low.
//!
//! The length of the turns is known only at the end, so estimates are kept for windows of several
//! widths, or *levels*:
//!
//! ```text
//!  level 0   |short |short |short |short |full|short |short |short |short |    512 sections
//!  level 1   |short                      |    |full                |short |   2048 sections
//!  level 2   |short                           |                    |short |   8192 sections
//! ```
//!
//! A window with sections of n threads is full. Four short windows of a level form one window of
//! the next level, or fewer if these already have sections of n threads. The estimate of a level is
//! the mean over its short windows and the full windows of this and all lower levels.
//!
//! [`Widening::estimate`] takes the narrowest level in which nine in ten windows have enough
//! threads. Enough is almost as many as nine in ten windows of any other level have, or as many as
//! a window would have if threads took the lock in random order, whichever is fewer. The first
//! limit keeps windows narrow if a program's threads change from phase to phase: few windows span
//! the change. The second keeps them narrow if a thread seldom takes the lock.

use crate::compare::Comparison;
use crate::conflicts::Conflicts;
use crate::estimate::Means;
use crate::set::AddressSet;
use crate::window::Window;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many short windows form a window of the next level. Fewer would take more memory; more would
/// compare sections that are further apart than necessary.
const FORM_ONE: u32 = 4;

/// The least share of the expected threads that a level's windows must have. Each thread that a
/// window lacks changes the speed-up by at most 1, so the error is at most 5 %.
const ENOUGH: f64 = 0.95;

/// A level counts if none of its windows makes up more than one in this many of their total width.
/// A window that makes up half of a run may span two phases.
const LARGEST_SHARE: u64 = 3;

/// The sizes of windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub processors: u32,
    /// Number of sections after which a window of level 0 closes.
    pub sections: u32,
    /// Number of samples drawn from a long window.
    pub draws: u32,
    /// Bound on a window's width: a multiple of `sections`.
    pub widest: u32,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Widening {
    sizes: Sizes,
    levels: Vec<Level>,
    /// Means of the window that was open at the end, if no window has closed.
    partial: WindowMeans,
}

#[derive(Debug)]
struct Level {
    /// The open window.
    window: Window,
    /// Number of short windows of the level below that `window` consists of, and the most threads
    /// that one of them had.
    parts: u32,
    threads_of_part: usize,
    /// Windows of level 0 in `window`.
    width: u32,
    full: WindowMeans,
    short: WindowMeans,
    /// For each number of threads, the total width of the short windows with that many.
    threads: BTreeMap<u32, u64>,
}

/// Means over windows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WindowMeans {
    pub windows: u64,
    /// Their total width, and that of the widest one.
    width: u64,
    widest: u64,
    pub bytes: Means,
    pub lines: Means,
}

/// The result of [`Widening::estimate`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fitting {
    pub means: WindowMeans,
    /// Sections after which a window closes even if it is short.
    pub sections: u32,
    /// Whether no window closed, and the means are those of the window open at the end.
    pub partial: bool,
}

/// What comparisons add to, and their working memory.
pub(crate) struct Counting<'a> {
    pub comparison: &'a mut Comparison,
    pub conflicts: &'a mut Conflicts,
    pub rng: &'a mut Rng,
}

impl Widening {
    pub fn new(sizes: Sizes) -> Self {
        let levels = vec![Level::new(sizes)];
        Widening { sizes, levels, partial: WindowMeans::default() }
    }

    /// Adds a section; see [`Window::add`].
    pub fn add(
        &mut self,
        thread: u32,
        rng: &mut Rng,
        set: impl FnMut() -> Arc<AddressSet>,
    ) -> bool {
        let window = &mut self.levels[0].window;
        window.add(thread, rng, set);
        window.threads() >= self.sizes.processors as usize
            || window.sections() >= self.sizes.sections
    }

    /// Closes the window of level 0, and the wider ones that it completes.
    pub fn close(&mut self, counting: &mut Counting) {
        self.levels[0].width = 1;
        for level in 0.. {
            let is_full = self.levels[level].close(&self.sizes, counting);
            let wider = FORM_ONE.checked_pow(level as u32 + 1);
            let widest = wider.is_none_or(|wider| wider > self.sizes.widest);
            if is_full || widest {
                self.levels[level].clear();
                return;
            }
            if self.levels.len() == level + 1 {
                self.levels.push(Level::new(self.sizes));
            }
            let [closed, next] = self.levels.get_disjoint_mut([level, level + 1]).expect("two");
            next.window.merge(&closed.window, counting.rng);
            next.parts += 1;
            next.width += closed.width;
            next.threads_of_part = next.threads_of_part.max(closed.window.threads());
            closed.clear();
            if next.parts < FORM_ONE && !next.is_full(&self.sizes) {
                return;
            }
        }
    }

    /// Compares the open window if none has closed.
    pub fn close_first(&mut self, counting: &mut Counting) {
        let level = &mut self.levels[0];
        let closed = level.full.windows + level.short.windows + self.partial.windows;
        if closed == 0 && level.window.threads() > 0 {
            level.width = 1;
            self.partial = level.compare(&self.sizes, counting);
        }
    }

    /// Drops the open windows.
    pub fn clear(&mut self) {
        self.levels.iter_mut().for_each(Level::clear);
    }

    /// The means of the narrowest level whose windows have enough threads. `expected` is the number
    /// of threads that a window of level 0 would have if threads took the lock in random order.
    pub fn estimate(&self, expected: f64) -> Fitting {
        let mut full = WindowMeans::default();
        let mut sections = self.sizes.sections;
        let mut fitting: Vec<(Fitting, u32)> = Vec::with_capacity(self.levels.len());
        for level in &self.levels {
            full.add(&level.full);
            let mut means = full;
            means.add(&level.short);
            let has_closed = means.windows > 0;
            if fitting.is_empty() || has_closed && means.widest * LARGEST_SHARE <= means.width {
                let threads = self.threads_of_most(level, full.width);
                fitting.push((Fitting { means, sections, partial: false }, threads));
            }
            sections = sections.saturating_mul(FORM_ONE);
        }
        let most = fitting.iter().map(|(_, threads)| *threads).max().unwrap_or(0);
        let enough = ENOUGH * f64::from(most).min(expected);
        let fits = fitting.iter().find(|(_, threads)| f64::from(*threads) >= enough);
        let fits = fits.or(fitting.first()).map(|(fitting, _)| *fitting).unwrap_or_default();
        if fits.means.windows == 0 {
            return Fitting { means: self.partial, partial: self.partial.windows > 0, ..fits };
        }
        fits
    }

    /// The least number of threads in nine tenths of a level's windows, by width. `full` is the
    /// width of the full windows.
    fn threads_of_most(&self, level: &Level, full: u64) -> u32 {
        let tenth = (full + level.short.width) / 10;
        let mut width = 0;
        let of_short = level.threads.iter().find(|(_, of_these)| {
            width += **of_these;
            width > tenth
        });
        of_short.map_or(self.sizes.processors, |(threads, _)| *threads)
    }
}

impl Level {
    fn new(sizes: Sizes) -> Self {
        Level {
            window: Window::new(sizes.processors.min(sizes.sections / 4), sizes.draws),
            parts: 0,
            threads_of_part: 0,
            width: 0,
            full: WindowMeans::default(),
            short: WindowMeans::default(),
            threads: BTreeMap::new(),
        }
    }

    fn is_full(&self, sizes: &Sizes) -> bool {
        self.window.threads() >= sizes.processors as usize
    }

    /// Compares the window's samples and adds their means. Returns whether the window is full. The
    /// window is not cleared, because it may become part of a wider one.
    fn close(&mut self, sizes: &Sizes, counting: &mut Counting) -> bool {
        let means = self.compare(sizes, counting);
        let is_full = self.is_full(sizes);
        if is_full {
            self.full.add(&means);
        } else {
            self.short.add(&means);
            *self.threads.entry(self.window.threads() as u32).or_default() += means.width;
        }
        is_full
    }

    fn compare(&self, sizes: &Sizes, counting: &mut Counting) -> WindowMeans {
        let mut means = WindowMeans {
            windows: 1,
            width: self.width.into(),
            widest: self.width.into(),
            ..WindowMeans::default()
        };
        let weight = self.window.weight() * self.width;
        // A wide window with no more threads than one of its parts counts only towards the means:
        // its sections have already been compared with nearer ones.
        let mut apart = Conflicts::default();
        let conflicts = if self.window.threads() > self.threads_of_part {
            &mut *counting.conflicts
        } else {
            &mut apart
        };
        for sample in self.window.samples() {
            let mut sets: Vec<&AddressSet> = sample.iter().map(|set| &**set).collect();
            if sets.len() > sizes.processors as usize {
                counting.rng.shuffle(&mut sets);
                sets.truncate(sizes.processors as usize);
            }
            let (bytes, lines) = counting.comparison.compare(&sets, conflicts);
            means.bytes.add(bytes, weight);
            means.lines.add(lines, weight);
        }
        means
    }

    fn clear(&mut self) {
        self.window.clear();
        (self.parts, self.width, self.threads_of_part) = (0, 0, 0);
    }
}

impl WindowMeans {
    fn add(&mut self, other: &WindowMeans) {
        self.windows += other.windows;
        self.width += other.width;
        self.widest = self.widest.max(other.widest);
        self.bytes.merge(&other.bytes);
        self.lines.merge(&other.lines);
    }
}

/// The expected number of distinct threads among `sections` sections drawn at random. `shares` has
/// the number of sections of each thread.
pub(crate) fn expected_threads(shares: impl Iterator<Item = u64>, sections: u32) -> f64 {
    // The order must not change the sum.
    let mut shares: Vec<u64> = shares.collect();
    shares.sort_unstable();
    let all = shares.iter().sum::<u64>().max(1) as f64;
    shares.iter().map(|share| 1.0 - (1.0 - *share as f64 / all).powf(sections.into())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_threads_of_known_shares() {
        let expected =
            |shares: &[u64], sections| expected_threads(shares.iter().copied(), sections);
        assert_eq!(expected(&[], 512), 0.0);
        assert_eq!(expected(&[7], 512), 1.0);
        assert_eq!(expected(&[1, 1], 2), 1.5);
        assert!((expected(&[1; 16], 512) - 16.0).abs() < 1e-6);
        // A thread that seldom takes the lock is hardly ever in a window.
        assert!(expected(&[1_000_000, 1_000_000, 10], 512) < 2.01);
    }
}
