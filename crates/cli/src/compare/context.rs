//! The machine and the time of a comparison, without which its figures mean nothing.

use serde::{Deserialize, Serialize};
use unconvoy_measure::context::{self, Machine};

use crate::messages::compare as messages;

/// Context block of a record.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Context {
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
    /// Captures the machine's present state.
    pub fn capture() -> Self {
        Self {
            machine: Machine::capture(),
            date: context::now(),
            load_average: context::load_average(),
            command: context::command_line(),
        }
    }

    /// One line for below a table and a figure.
    pub fn line(&self) -> String {
        format!("{}, {}", self.machine.line(), self.date)
    }

    /// A warning with its remedy, if other programs loaded the machine at the start.
    pub fn warning(&self) -> Option<String> {
        let online = self.machine.processors_online.unwrap_or(self.machine.processors);
        let load = self.load_average.filter(|load| *load > f64::from(online))?;
        Some(messages::machine_is_loaded(load, online))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_above_processor_count_names_remedy() {
        let mut context = Context::capture();
        context.machine.processors_online = Some(2);
        context.load_average = Some(1.9);
        assert_eq!(context.warning(), None);
        context.load_average = Some(2.5);
        assert!(context.warning().unwrap().contains("stop the other"));
    }
}
