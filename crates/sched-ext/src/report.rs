//! The contents of `--monitor` and `--metrics`. `picture.rs` draws them on a terminal's screen.

use std::fmt::Write;
use std::time::Duration;

use unicode_width::UnicodeWidthChar;

use crate::back_end::Scheduler;
use crate::kernel::{LOCK_KINDS, Totals};
use crate::topology::Topology;

/// The state of the scheduler at one moment.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub since_start: Duration,
    pub cores: u32,
    pub nodes: u32,
    pub bound: u32,
    /// Whether the search has found a bound.
    pub has_converged: bool,
    /// Number of lock-intensive tasks, as counted by the policy.
    pub tasks: u32,
    /// Number of lock-intensive tasks, as counted by the kernel side.
    pub specials: u64,
    pub votes: u64,
    /// The waiting share according to the votes, 0 to 1.
    pub waiting: f64,
    pub changes: u64,
    pub totals: Totals,
    /// The tasks that wait most, in descending order.
    pub named: Vec<Named>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Named {
    pub tid: u32,
    /// The task's name, safe to print on a terminal; empty if the task has ended.
    pub name: String,
    /// The waiting share of its last slices, 0 to 1.
    pub share: f64,
    /// The kernel's number of its core.
    pub core: u32,
    /// Whether that core is in the special set.
    pub is_in_set: bool,
}

impl Report {
    /// Captures the state of a scheduler, naming the `most` tasks that wait most.
    pub fn new(
        scheduler: &Scheduler,
        topology: &Topology,
        totals: Totals,
        specials: u64,
        since_start: Duration,
        most: usize,
    ) -> Self {
        let mut tasks: Vec<_> = scheduler.tasks().collect();
        tasks.sort_unstable_by(|one, other| {
            other.share.total_cmp(&one.share).then(one.tid.cmp(&other.tid))
        });
        tasks.truncate(most);
        let policy = scheduler.policy();
        let named = tasks.into_iter().map(|task| Named {
            tid: task.tid,
            name: std::fs::read(format!("/proc/{}/comm", task.tid))
                .map(|name| legible(&name))
                .unwrap_or_default(),
            share: task.share,
            // The policy's number of a core is its place in the order of cores, and the set is the
            // first ones of that order.
            core: topology.order.get(task.core as usize).copied().unwrap_or(task.core),
            is_in_set: task.core < policy.bound(),
        });
        let named = named.collect();
        Report {
            since_start,
            cores: topology.order.len() as u32,
            nodes: topology.nodes.len() as u32,
            bound: policy.bound(),
            has_converged: policy.has_converged(),
            tasks: policy.tasks(),
            specials,
            votes: policy.votes().count(),
            waiting: policy.votes().share(),
            changes: scheduler.changes(),
            totals,
            named,
        }
    }

    /// Average number of processors on which tasks waited since the report `last`.
    pub fn processors_waited(&self, last: &Report) -> f64 {
        let spun: u64 =
            self.totals.spun_ns.iter().sum::<u64>() - last.totals.spun_ns.iter().sum::<u64>();
        spun as f64 / 1e9 / self.seconds_since(last)
    }

    /// Waits per second since the report `last`, by kind of lock.
    pub fn rates(&self, last: &Report) -> [f64; LOCK_KINDS.len()] {
        std::array::from_fn(|kind| {
            (self.totals.waits[kind] - last.totals.waits[kind]) as f64 / self.seconds_since(last)
        })
    }

    fn seconds_since(&self, last: &Report) -> f64 {
        self.since_start.saturating_sub(last.since_start).as_secs_f64().max(1e-3)
    }

    pub fn phase(&self) -> &'static str {
        if self.has_converged { "found" } else { "searching" }
    }

    /// The report as lines for people. Rates refer to the time since the report `last`.
    pub fn lines(&self, last: &Report) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{:>6.0} s  bound {} of {} ({}), {} lock-intensive tasks, {} votes: {:.1} % waited, \
             {} changes",
            self.since_start.as_secs_f64(),
            self.bound,
            self.cores,
            self.phase(),
            self.tasks,
            self.votes,
            100.0 * self.waiting,
            self.changes,
        );
        let _ = write!(text, "          {:.1} processors waited;", self.processors_waited(last));
        for (kind, rate) in LOCK_KINDS.iter().zip(self.rates(last)) {
            let _ = write!(text, " {kind} {rate:.0}/s");
        }
        text.push('\n');
        for Named { tid, name, share, core, .. } in &self.named {
            let _ = writeln!(
                text,
                "          {tid:>8} {name:<15} {:>5.1} % on core {core}",
                100.0 * share
            );
        }
        text
    }

    /// The report in the OpenMetrics text format, version 1.0.
    pub fn open_metrics(&self) -> String {
        let mut text = String::new();
        let mut gauge = |name: &str, unit: &str, help: &str, value: f64| {
            let _ = writeln!(text, "# TYPE unconvoy_sched_{name} gauge");
            if !unit.is_empty() {
                let _ = writeln!(text, "# UNIT unconvoy_sched_{name} {unit}");
            }
            let _ = writeln!(
                text,
                "# HELP unconvoy_sched_{name} {help}\nunconvoy_sched_{name} {value}"
            );
        };
        gauge("cores", "", "Processors online.", self.cores.into());
        gauge("nodes", "", "Memory nodes with processors.", self.nodes.into());
        gauge("bound", "", "Cores in the special set.", self.bound.into());
        gauge(
            "settled",
            "",
            "Whether the search has found a bound.",
            f64::from(u8::from(self.has_converged)),
        );
        gauge("tasks", "", "Lock-intensive tasks, as counted by the policy.", self.tasks.into());
        gauge(
            "special_tasks",
            "",
            "Lock-intensive tasks, as counted by the kernel.",
            self.specials as f64,
        );
        gauge("votes", "", "Votes on the present bound.", self.votes as f64);
        gauge(
            "waiting_ratio",
            "ratio",
            "Share of the voted time spent waiting for locks.",
            self.waiting,
        );
        let totals = &self.totals;
        let counters = [
            ("bound_changes", "Changes of the bound.", self.changes),
            ("slices", "Finished time slices.", totals.slices),
            ("slices_recorded", "Slices recorded for the policy.", totals.recorded),
            ("slices_lost", "Slices dropped because the ring was full.", totals.lost),
            ("ends_lost", "Ends of tasks dropped because the ring was full.", totals.lost_ends),
            ("inherited", "Tasks that started lock-intensive.", totals.inherited),
            (
                "borrowed_cores",
                "Times that an idle core of the set ran an ordinary task.",
                totals.borrowed,
            ),
            (
                "node_crossings",
                "Tasks that a core took from another memory node's queue.",
                totals.crossings,
            ),
            ("displaced", "Times that the set forced a task off its core.", totals.displaced),
        ];
        for (name, help, value) in counters {
            let _ = writeln!(
                text,
                "# TYPE unconvoy_sched_{name} counter\n# HELP unconvoy_sched_{name} {help}"
            );
            let _ = writeln!(text, "unconvoy_sched_{name}_total {value}");
        }
        let nanoseconds = |values: [u64; LOCK_KINDS.len()]| values.map(|value| value as f64 / 1e9);
        let by_kind = [
            (
                "waits",
                "",
                "Times that a task waited for a lock.",
                totals.waits.map(|value| value as f64),
            ),
            (
                "spun_seconds",
                "seconds",
                "Time that tasks waited on a processor.",
                nanoseconds(totals.spun_ns),
            ),
            (
                "slept_seconds",
                "seconds",
                "Time that tasks slept for a lock.",
                nanoseconds(totals.slept_ns),
            ),
        ];
        for (name, unit, help, values) in by_kind {
            let _ = writeln!(text, "# TYPE unconvoy_sched_{name} counter");
            if !unit.is_empty() {
                let _ = writeln!(text, "# UNIT unconvoy_sched_{name} {unit}");
            }
            let _ = writeln!(text, "# HELP unconvoy_sched_{name} {help}");
            for (kind, value) in LOCK_KINDS.iter().zip(values) {
                let _ = writeln!(text, "unconvoy_sched_{name}_total{{lock=\"{kind}\"}} {value}");
            }
        }
        text.push_str("# EOF\n");
        text
    }
}

/// Makes a task's name safe to print; tasks choose their own names.
fn legible(name: &[u8]) -> String {
    String::from_utf8_lossy(name).trim().chars().map(shown).collect()
}

/// Makes text that may contain names of tasks safe to print, line by line.
pub fn legible_lines(text: &str) -> String {
    text.chars()
        .map(
            |character| if matches!(character, '\n' | '\t') { character } else { shown(character) },
        )
        .collect()
}

/// Replaces a character without width, which a terminal may interpret as part of an escape
/// sequence.
fn shown(character: char) -> char {
    if character.width().is_some_and(|columns| columns > 0) { character } else { '?' }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unconvoy_sched::{Parameters, Slice};

    use crate::back_end::{Event, Record};
    use crate::topology::Node;

    fn topology() -> Topology {
        let node = |number, places| Node { number, places, near: Vec::new() };
        Topology { order: (0..8).collect(), nodes: vec![node(0, 0..4), node(1, 4..8)] }
    }

    fn report() -> Report {
        let totals = Totals {
            waits: [7, 0, 0, 0, 0],
            spun_ns: [2_000_000_000, 0, 0, 0, 0],
            ..Totals::default()
        };
        Report::new(
            &Scheduler::new(Parameters::refined(8), 0),
            &topology(),
            totals,
            0,
            Duration::from_secs(2),
            0,
        )
    }

    #[test]
    fn lines_report_the_time_since_the_last_report() {
        let text = report().lines(&Report::default());
        assert!(text.contains("bound 1 of 8 (searching), 0 lock-intensive tasks"), "{text}");
        assert!(text.contains("1.0 processors waited; spin 4/s"), "{text}");
        let again = report().lines(&report());
        assert!(again.contains("0.0 processors waited; spin 0/s"), "{again}");
    }

    #[test]
    fn lines_keep_their_format() {
        let totals = Totals {
            waits: [21_350, 0, 12, 3, 0],
            spun_ns: [700_000_000, 0, 0, 0, 0],
            ..Totals::default()
        };
        let task = |tid, name: &str, share, core| Named {
            tid,
            name: name.into(),
            share,
            core,
            is_in_set: true,
        };
        let report = Report {
            since_start: Duration::from_secs(12),
            cores: 8,
            nodes: 2,
            bound: 2,
            has_converged: true,
            tasks: 8,
            specials: 8,
            votes: 57,
            waiting: 0.341,
            changes: 9,
            totals,
            named: vec![
                task(231, "server", 0.362, 1),
                task(7, "a name that is much longer", 0.05, 0),
            ],
        };
        let last = Report { since_start: Duration::from_secs(11), ..Report::default() };
        let expected =
            "    12 s  bound 2 of 8 (found), 8 lock-intensive tasks, 57 votes: 34.1 % waited, \
9 changes
          0.7 processors waited; spin 21350/s rwlock 0/s mutex 12/s rwsem 3/s other 0/s
               231 server           36.2 % on core 1
                 7 a name that is much longer   5.0 % on core 0
";
        assert_eq!(report.lines(&last), expected);
    }

    #[test]
    fn tasks_are_named_by_waiting_share() {
        let mut scheduler = Scheduler::new(Parameters::refined(8), 0);
        for (task, waited_ns) in [(1_u32, 500), (2, 900), (3, 500), (4, 700)] {
            let slice = Slice { core: 3, ran_ns: 1000, waited_ns };
            let event = Event::Slice { slice, bound: scheduler.bound() };
            // No thread has such an id.
            let record = Record {
                task: task.into(),
                tid: u32::MAX - task,
                is_special: false,
                parent: None,
                event,
            };
            scheduler.record(record, 0);
        }
        let named = |most| {
            let report =
                Report::new(&scheduler, &topology(), Totals::default(), 0, Duration::ZERO, most);
            report.named.iter().map(|task| u32::MAX - task.tid).collect::<Vec<_>>()
        };
        assert_eq!(named(9), [2, 4, 3, 1]);
        assert_eq!(named(2), [2, 4]);
        assert_eq!(named(0), [0; 0]);
        // The set is the first cores of the order, whatever their numbers.
        let order = vec![7, 6, 5, 0, 1, 2, 3, 4];
        let other = Topology { order, ..topology() };
        let report = Report::new(&scheduler, &other, Totals::default(), 0, Duration::ZERO, 1);
        let task = &report.named[0];
        assert_eq!((task.core, task.is_in_set), (0, 3 < report.bound));
    }

    #[test]
    fn task_name_cannot_control_the_terminal() {
        let rename = |name: &[u8]| std::fs::write("/proc/thread-self/comm", name).unwrap();
        let own_name = || {
            let mut scheduler = Scheduler::new(Parameters::refined(8), 0);
            let slice = Slice { core: 0, ran_ns: 1000, waited_ns: 1000 };
            let event = Event::Slice { slice, bound: scheduler.bound() };
            // SAFETY: gettid takes no arguments and cannot fail.
            let tid = unsafe { libc::gettid() }.cast_unsigned();
            scheduler.record(Record { task: 1, tid, is_special: false, parent: None, event }, 0);
            let report =
                Report::new(&scheduler, &topology(), Totals::default(), 0, Duration::ZERO, 1);
            assert_eq!(report.lines(&Report::default()).lines().count(), 3);
            report.named[0].name.clone()
        };
        let names: [(&[u8], &str); 6] = [
            (b"\x1b[2J\x1b]0;x\x07", "?[2J?]0;x?"),
            (b"one\ntwo\r\tx", "one?two??x"),
            ("c1\u{9b}31m\u{7f}".as_bytes(), "c1?31m?"),
            ("b\u{202e}idi\u{200b}".as_bytes(), "b?idi?"),
            (b"\xff\xfe", "\u{fffd}\u{fffd}"),
            ("数据库".as_bytes(), "数据库"),
        ];
        for (name, expected) in names {
            rename(name);
            assert_eq!(own_name(), expected);
        }
        let all: String = ('\0'..='\u{ffff}').collect();
        assert!(!legible(all.as_bytes()).contains(char::is_control));
        assert_eq!(legible_lines("  one\n\ttwo\x1b[m\r\n"), "  one\n\ttwo?[m?\n");
    }

    #[test]
    fn metrics_follow_the_openmetrics_format() {
        let text = report().open_metrics();
        assert!(text.ends_with("# EOF\n"));
        assert!(text.contains("\nunconvoy_sched_bound 1\n"));
        assert!(text.contains("\nunconvoy_sched_nodes 2\n"));
        assert!(text.contains("\nunconvoy_sched_spun_seconds_total{lock=\"spin\"} 2\n"));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let family = name.split('{').next().unwrap().trim_end_matches("_total");
            assert!(text.contains(&format!("# TYPE {family} ")), "{line}");
            value.parse::<f64>().unwrap();
        }
    }
}
