//! The machine and the moment: without them a figure means nothing.

use serde::Serialize;
use unconvoy_measure::context::{self, Machine};

/// The context block of a record.
#[derive(Debug, Clone, Serialize)]
pub struct Context {
    /// The machine.
    #[serde(flatten)]
    pub machine: Machine,
    /// Start of the comparison, UTC.
    pub date: String,
    /// One-minute load average at the start.
    pub load_average: Option<f64>,
    /// The whole command line.
    pub command: Vec<String>,
}

impl Context {
    /// Looks at the machine now.
    pub fn capture() -> Self {
        Self {
            machine: Machine::capture(),
            date: context::now(),
            load_average: context::load_average(),
            command: context::command_line(),
        }
    }

    /// The line under a table and a figure.
    pub fn line(&self) -> String {
        format!("{}, {}", self.machine.line(), self.date)
    }

    /// Neighbours on the machine at the start, and what to do about them.
    pub fn warning(&self) -> Option<String> {
        let online = self.machine.processors_online.unwrap_or(self.machine.processors);
        let load = self.load_average.filter(|load| *load > f64::from(online))?;
        Some(format!(
            "the load average is {load:.1} on {online} processors: other programs are running; \
             stop them, or expect a wide spread"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_named_with_a_remedy() {
        let mut context = Context::capture();
        context.machine.processors_online = Some(2);
        context.load_average = Some(1.9);
        assert_eq!(context.warning(), None);
        context.load_average = Some(2.5);
        assert!(context.warning().unwrap().contains("stop them"));
    }
}
