//! The figures that can be drawn, and what the papers' own show, in words.

/// What a figure is drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The count of threads after changes of the sleep target.
    Series,
    /// The count of threads over time, at a fixed target, under two load managers.
    Steadiness,
    /// Lines over places.
    Sweep(&'static str),
    /// Fractions of what a process reaches alone.
    Fractions,
    /// Configurations over thread counts; of these benchmarks, or of any if there are none.
    Grid(&'static [&'static str]),
}

/// A figure.
#[derive(Debug)]
pub struct Paper {
    /// What a user writes.
    pub name: &'static str,
    /// Above the figure.
    pub title: &'static str,
    /// What it is drawn from.
    pub source: Source,
    /// The command that measures that.
    pub measured_by: &'static str,
    /// What the paper's figure shows, where in the paper, on which machine; empty if there is no paper.
    pub remark: &'static str,
}

/// Every figure.
pub const FIGURES: &[Paper] = &[
    Paper {
        name: "asplos-5",
        title: "Running threads at a fixed target",
        source: Source::Steadiness,
        measured_by: "steadiness",
        remark: "The paper's: Johnson, Stoica, Ailamaki, Mowry, ASPLOS 2010, section 2.3, Figure 5; TM-1 with 63 clients on a Sun Niagara II of 64 contexts, the target set to 32 by hand. Until load-triggered backoff is switched on, the number of running threads is fairly even; from then on it swings far to both sides of the target and wanders for long stretches below it, because a sleeper comes back only when its time is over, and many come back at the same clock tick.",
    },
    Paper {
        name: "asplos-8",
        title: "Bump test: threads that are not asleep after changes of the sleep target",
        source: Source::Series,
        measured_by: "bump",
        remark: "The paper's: ASPLOS 2010, section 5.1, Figure 8; a microbenchmark with one lock on a Sun Niagara II of 64 contexts. The number of active threads follows each step of the target at once, in both directions: the first thread reacts within 30 us, and the new level is reached and kept within 200 us.",
    },
    Paper {
        name: "asplos-9",
        title: "Throughput and contention, below and above full load",
        source: Source::Sweep("contention"),
        measured_by: "contention",
        remark: "The paper's: ASPLOS 2010, section 5.2, Figure 9; threads that take one lock with a fixed delay between requests, on a Sun Niagara II of 64 contexts: 61 threads (95 % load), and 96 threads (150 %) without and with load control. Contention is high on the left and falls to the right. At 95 % throughput soon depends on the number of threads alone. At 150 % without load control it is far below that under contention and comes closer as contention falls; with load control most of the loss is gone over a wide range, and least at the highest contention, where every preempted holder costs about 12 us.",
    },
    Paper {
        name: "asplos-10",
        title: "Throughput and the controller's interval",
        source: Source::Sweep("interval"),
        measured_by: "interval",
        remark: "The paper's: ASPLOS 2010, section 5.3, Figure 10; TM-1 on a Sun Niagara II of 64 contexts with 63, 72 and 96 threads (98, 110 and 150 % load), load control on. Very short intervals cost all three, most at the highest load, because Solaris walks all threads for each reading. Between 3 and 10 ms the overloaded lines are at their best, while 98 % sees only the cost. Beyond 10 ms, a scheduler tick, decisions are made on stale readings and throughput falls. The authors chose 7 ms.",
    },
    Paper {
        name: "asplos-11",
        title: "Throughput of applications as threads are added",
        source: Source::Grid(&["raytrace", "splash", "tatp", "tpcc", "leveldb"]),
        measured_by: "tatp (or tpcc, raytrace, splash)",
        remark: "The paper's: ASPLOS 2010, section 5.4, Figure 11; Raytrace (SPLASH-2), TM-1 and TPC-C in Shore-MT on a Sun Niagara II of 64 contexts, up to 128 threads, under pthread mutexes, TP-MCS, and TP-MCS with load control. In Raytrace and TM-1, TP-MCS is well ahead of pthread mutexes up to 64 threads, and beyond that loses more than 60 % of its peak; with load control 85 to 92 % of the peak are kept at the highest load. In TPC-C threads wait for database locks more than for mutexes: pthread mutexes do as well as load control, and TP-MCS holds to about 150 % load.",
    },
    Paper {
        name: "asplos-12",
        title: "Two processes that compete for the processors",
        source: Source::Fractions,
        measured_by: "interference",
        remark: "The paper's: ASPLOS 2010, section 5.5, Figure 12; two TM-1 processes on a Sun Niagara II of 64 contexts, self with as many threads as contexts and under load control, other with more and more threads. If both use load control they share the machine evenly, and lose 10 to 15 % together. If other does not, and has many threads, self keeps about 35 % of its peak and other does badly, because its holders are preempted. The paper names a process that only burns time as the case that load control cannot defend against, and has no curve for it.",
    },
    Paper {
        name: "damon-1",
        title: "Throughput of lock algorithms as threads are added",
        source: Source::Grid(&[]),
        measured_by: "tatp (or any other grid) --locks LIST",
        remark: "The paper's: Johnson, Athanassoulis, Stoica, Ailamaki, DaMoN 2009, section 3.2, Figure 1; TM-1 in Shore-MT on a Sun T5220 (Niagara II) restricted to 16 contexts, one per pipeline. Up to 100 % load all lock algorithms scale linearly and alike. Beyond, the adaptive pthread mutex is the best by far; TP-MCS with schedctl comes next, TP-MCS falls rapidly, yielding makes it worse, and plain MCS collapses at once.",
    },
    Paper {
        name: "throughput",
        title: "Throughput as threads are added",
        source: Source::Grid(&[]),
        measured_by: "counter (or any other grid)",
        remark: "",
    },
];

/// The figure of this name.
///
/// # Errors
///
/// There is none; lists those there are.
pub fn named(name: &str) -> Result<&'static Paper, String> {
    let names = || FIGURES.iter().map(|figure| figure.name).collect::<Vec<_>>().join(", ");
    let found = FIGURES.iter().find(|figure| figure.name == name);
    found.ok_or_else(|| format!("there is no figure {name}; there are {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_papers_figure_is_described_with_its_place() {
        for figure in FIGURES.iter().filter(|figure| figure.name.contains('-')) {
            let number = figure.name.split_once('-').map_or("", |(_, number)| number);
            assert!(figure.remark.contains(&format!("Figure {number};")), "{}", figure.name);
            assert!(figure.remark.contains("section") && figure.remark.contains("Sun"), "{}", figure.name);
        }
        assert!(named("nosuch").is_err_and(|error| error.contains("damon-1")));
    }
}
