//! What `--monitor` and `--metrics` show.

use std::fmt::Write;
use std::time::Duration;

use crate::conductor::Conductor;
use crate::kernel::{LOCK_KINDS, Totals};
use crate::topology::Topology;

/// The tasks that the monitor names: those that wait most.
const NAMED: usize = 10;

/// One look at the scheduler.
#[derive(Debug, Clone, Default)]
pub struct Report {
    since_start: Duration,
    cores: u32,
    nodes: u32,
    bound: u32,
    is_settled: bool,
    tasks: u32,
    specials: u64,
    votes: u64,
    waiting: f64,
    changes: u64,
    totals: Totals,
    /// Id, share and core, by share.
    named: Vec<(u32, f64, u32)>,
}

impl Report {
    /// A look at a machine's scheduler.
    pub fn new(
        conductor: &Conductor,
        topology: &Topology,
        totals: Totals,
        specials: u64,
        since_start: Duration,
    ) -> Self {
        let mut named: Vec<_> = conductor.tasks().map(|task| (task.tid, task.share, task.core)).collect();
        named.sort_unstable_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        named.truncate(NAMED);
        let policy = conductor.policy();
        Report {
            since_start,
            cores: topology.order.len() as u32,
            nodes: topology.nodes.len() as u32,
            bound: policy.bound(),
            is_settled: policy.is_settled(),
            tasks: policy.tasks(),
            specials,
            votes: policy.votes().count(),
            waiting: policy.votes().share(),
            changes: conductor.changes(),
            totals,
            named,
        }
    }

    /// For people: what there is, and what happened since the report `last`.
    pub fn lines(&self, last: &Report) -> String {
        let mut text = String::new();
        let seconds = self.since_start.saturating_sub(last.since_start).as_secs_f64().max(1e-3);
        let phase = if self.is_settled { "found" } else { "searching" };
        let _ = writeln!(
            text,
            "{:>6.0} s  bound {} of {} ({phase}), {} lock-intensive tasks, {} votes: {:.1} % waited, {} changes",
            self.since_start.as_secs_f64(),
            self.bound,
            self.cores,
            self.tasks,
            self.votes,
            100.0 * self.waiting,
            self.changes,
        );
        let spun: u64 = self.totals.spun_ns.iter().sum::<u64>() - last.totals.spun_ns.iter().sum::<u64>();
        let _ = write!(text, "          {:.1} processors waited;", spun as f64 / 1e9 / seconds);
        for (kind, name) in LOCK_KINDS.iter().enumerate() {
            let _ =
                write!(text, " {name} {:.0}/s", (self.totals.waits[kind] - last.totals.waits[kind]) as f64 / seconds);
        }
        text.push('\n');
        for &(tid, share, core) in &self.named {
            let name = std::fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
            let _ = writeln!(text, "          {tid:>8} {:<15} {:>5.1} % on core {core}", name.trim(), 100.0 * share);
        }
        text
    }

    /// For machines: the OpenMetrics text format, 1.0.
    pub fn open_metrics(&self) -> String {
        let mut text = String::new();
        let mut gauge = |name: &str, unit: &str, help: &str, value: f64| {
            let _ = writeln!(text, "# TYPE unconvoy_sched_{name} gauge");
            if !unit.is_empty() {
                let _ = writeln!(text, "# UNIT unconvoy_sched_{name} {unit}");
            }
            let _ = writeln!(text, "# HELP unconvoy_sched_{name} {help}\nunconvoy_sched_{name} {value}");
        };
        gauge("cores", "", "Processors online.", self.cores.into());
        gauge("nodes", "", "Memory nodes that have processors.", self.nodes.into());
        gauge("bound", "", "Cores in the special set.", self.bound.into());
        gauge("settled", "", "Whether the search for the bound has ended.", f64::from(u8::from(self.is_settled)));
        gauge("tasks", "", "Lock-intensive tasks, as the policy counts them.", self.tasks.into());
        gauge("special_tasks", "", "Lock-intensive tasks, as the kernel counts them.", self.specials as f64);
        gauge("votes", "", "Votes on the present bound.", self.votes as f64);
        gauge("waiting_ratio", "ratio", "Part of the voted time that was waited for locks.", self.waiting);
        let totals = &self.totals;
        let counters = [
            ("bound_changes", "Changes of the bound.", self.changes),
            ("slices", "Time slices that ended.", totals.slices),
            ("slices_told", "Of these, told to the policy.", totals.told),
            ("slices_lost", "Slices that it was not told for want of room.", totals.lost),
            ("ends_lost", "Ends of tasks that it was not told for want of room.", totals.lost_ends),
            ("heirs", "Tasks that were lock-intensive from their start.", totals.heirs),
            ("guests", "Times that a free core of the set served an ordinary task.", totals.guests),
            ("node_crossings", "Tasks that a core took from another memory node's queue.", totals.crossings),
            ("displaced", "Times that a task had to leave its core because of the set.", totals.displaced),
        ];
        for (name, help, value) in counters {
            let _ = writeln!(text, "# TYPE unconvoy_sched_{name} counter\n# HELP unconvoy_sched_{name} {help}");
            let _ = writeln!(text, "unconvoy_sched_{name}_total {value}");
        }
        let nanoseconds = |values: [u64; LOCK_KINDS.len()]| values.map(|value| value as f64 / 1e9);
        let by_kind = [
            ("waits", "", "Times that a task had to wait for a lock.", totals.waits.map(|value| value as f64)),
            ("spun_seconds", "seconds", "Time that tasks waited on a processor.", nanoseconds(totals.spun_ns)),
            ("slept_seconds", "seconds", "Time that tasks slept for a lock.", nanoseconds(totals.slept_ns)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Node;
    use unconvoy_sched::Parameters;

    fn report() -> Report {
        let totals = Totals { waits: [7, 0, 0, 0, 0], spun_ns: [2_000_000_000, 0, 0, 0, 0], ..Totals::default() };
        let node = |number, places| Node { number, places, near: Vec::new() };
        let topology = Topology { order: (0..8).collect(), nodes: vec![node(0, 0..4), node(1, 4..8)] };
        Report::new(&Conductor::new(Parameters::refined(8), 0), &topology, totals, 0, Duration::from_secs(2))
    }

    #[test]
    fn the_monitor_says_what_happened_since_the_last_look() {
        let text = report().lines(&Report::default());
        assert!(text.contains("bound 1 of 8 (searching), 0 lock-intensive tasks"), "{text}");
        assert!(text.contains("1.0 processors waited; spin 4/s"), "{text}");
        let again = report().lines(&report());
        assert!(again.contains("0.0 processors waited; spin 0/s"), "{again}");
    }

    #[test]
    fn metrics_are_open_metrics() {
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
