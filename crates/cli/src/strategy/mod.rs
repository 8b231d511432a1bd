//! Strategy files (`unconvoy run --strategy FILE`): which algorithm serves which of a program's
//! locks.
//!
//! [`file`] parses a file, [`modules`] finds the program's ELF files, and [`resolve`] looks the
//! file's names up in them. The interposer gets the result in one environment variable
//! ([`unconvoy::catalogue::strategy`]), which child programs inherit like the other settings.

mod file;
mod modules;
mod name;
mod resolve;

use std::ffi::OsStr;
use std::path::Path;

use unconvoy::catalogue::environment;
use unconvoy::catalogue::strategy::{LONGEST, write};
use unconvoy_measure::input;

use crate::messages::strategy as messages;
use crate::refusal::Refusal;
pub use file::{Place, Settings, Strategy};
use resolve::Resolved;

impl Strategy {
    /// Reads a strategy file.
    ///
    /// # Errors
    ///
    /// Status 2: the file cannot be read or is wrong.
    pub fn read(path: &Path) -> Result<Self, Refusal> {
        let text = input::read_text(path, input::TEXT)
            .map_err(|error| Refusal::usage(messages::cannot_read(path, &error)))?;
        Strategy::parse(path, &text).map_err(Refusal::usage)
    }

    /// The settings for a program, and what of the strategy has no effect on it.
    ///
    /// # Errors
    ///
    /// Status 2: entries contradict each other, or name too many places.
    pub fn settings_for(&self, program: &OsStr) -> Result<(Settings, Vec<String>), Refusal> {
        let mut settings = self.settings.clone();
        if !self.has_choices() {
            return Ok((settings, Vec::new()));
        }
        let modules = modules::of_program(program, &self.named_objects());
        let Resolved { choices, default, rules, warnings } =
            resolve::resolve(self, &modules).map_err(Refusal::usage)?;
        let text = write(&choices, default, &rules);
        if text.len() > LONGEST {
            let message = messages::too_many_places(&self.path, rules.len());
            return Err(Refusal::usage(message));
        }
        settings.push((environment::STRATEGY.name, text));
        Ok((settings, warnings))
    }
}
