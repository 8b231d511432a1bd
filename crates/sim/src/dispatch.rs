//! The dispatch table of Solaris' time-sharing class: what becomes of a thread's priority.
//!
//! Source: `ts_dptbl(4)`, the manual page, whose members the rows here have in the order and the
//! units of `dispadmin -c TS -g -r 1000`.

use core::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::messages;

/// Number of priority levels of the class; level 0 runs last.
pub const LEVELS: usize = 60;
/// Upper limit of a quantum: 1000 s.
const LONGEST_QUANTUM_MS: u64 = 1_000_000;
/// Upper limit of [`Level::maxwait_s`], a `short` in Solaris.
const LONGEST_WAIT_S: u64 = 32_767;

/// A row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// How long a thread may run at this level before its priority is lowered, in milliseconds.
    pub quantum_ms: u32,
    /// Level of a thread that has used up its quantum.
    pub tqexp: u8,
    /// Level of a thread that enters or leaves a sleep after it has waited for too long.
    pub slpret: u8,
    /// Number of seconds without the end of a quantum that a thread may wait.
    pub maxwait_s: u16,
    /// Level of a runnable thread that has waited for longer.
    pub lwait: u8,
}

impl Level {
    const fn new(quantum_ms: u32, tqexp: u8, slpret: u8, maxwait_s: u16, lwait: u8) -> Self {
        Level { quantum_ms, tqexp, slpret, maxwait_s, lwait }
    }
}

impl Serialize for Level {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Level { quantum_ms, tqexp, slpret, maxwait_s, lwait } = *self;
        (quantum_ms, tqexp, slpret, maxwait_s, lwait).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Row;

        impl<'de> Visitor<'de> for Row {
            type Value = Level;

            fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
                text.write_str(messages::columns_of_dispatch())
            }

            /// Checks the values here, so that the error has the row's line.
            fn visit_seq<A: SeqAccess<'de>>(self, mut row: A) -> Result<Level, A::Error> {
                let last = LEVELS as u64 - 1;
                let mut next = |column: &str, from: u64, to: u64| {
                    let value: u64 =
                        row.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
                    match (from..=to).contains(&value) {
                        true => Ok(value),
                        false => {
                            Err(A::Error::custom(messages::dispatch_range(column, value, from, to)))
                        }
                    }
                };
                let level = Level {
                    quantum_ms: next("quantum", 1, LONGEST_QUANTUM_MS)? as u32,
                    tqexp: next("tqexp", 0, last)? as u8,
                    slpret: next("slpret", 0, last)? as u8,
                    maxwait_s: next("maxwait", 0, LONGEST_WAIT_S)? as u16,
                    lwait: next("lwait", 0, last)? as u8,
                };
                match row.next_element::<u64>()? {
                    None => Ok(level),
                    Some(_) => Err(A::Error::invalid_length(6, &self)),
                }
            }
        }

        deserializer.deserialize_seq(Row)
    }
}

/// A dispatch table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Level>", into = "Vec<Level>")]
pub struct Dispatch([Level; LEVELS]);

impl TryFrom<Vec<Level>> for Dispatch {
    type Error = String;

    fn try_from(levels: Vec<Level>) -> Result<Self, String> {
        let count = levels.len();
        let levels = levels.try_into();
        levels.map(Dispatch).map_err(|_| messages::dispatch_levels(count, LEVELS))
    }
}

impl From<Dispatch> for Vec<Level> {
    fn from(table: Dispatch) -> Self {
        table.0.to_vec()
    }
}

impl Dispatch {
    /// The row of `level`.
    pub fn level(&self, level: u8) -> &Level {
        &self.0[usize::from(level)]
    }

    /// Solaris' default table (`config_ts_dptbl`, `usr/src/uts/common/disp/ts_dptbl.c`; Sun System
    /// Administration Guide, 802-5750, "Timesharing Parameter Table"). Quanta are longest at the
    /// lowest level. No level waits, except the highest, so one second is enough to be raised.
    pub const SOLARIS: Dispatch = {
        let mut levels = [Level::new(20, 49, 59, 32_000, 59); LEVELS];
        let mut at = 0;
        while at < LEVELS - 1 {
            let level = at as u8;
            let (quantum_ms, raised) = match level {
                0..10 => (200, 50),
                10..20 => (160, 51),
                20..30 => (120, 52),
                30..35 => (80, 53),
                35..40 => (80, 54),
                40..45 => (40, 55),
                45..47 => (40, level + 11),
                _ => (40, 58),
            };
            let lwait = if level < 49 { raised } else { 59 };
            let lowered = level.saturating_sub(10);
            levels[at] = Level::new(quantum_ms, lowered, raised, 0, lwait);
            at += 1;
        }
        Dispatch(levels)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct File {
        dispatch: Dispatch,
    }

    /// Rows of the default table as published: level, quantum, tqexp, slpret, maxwait, lwait.
    const PUBLISHED: [[u32; 6]; 17] = [
        [0, 200, 0, 50, 0, 50],
        [9, 200, 0, 50, 0, 50],
        [10, 160, 0, 51, 0, 51],
        [19, 160, 9, 51, 0, 51],
        [20, 120, 10, 52, 0, 52],
        [29, 120, 19, 52, 0, 52],
        [30, 80, 20, 53, 0, 53],
        [34, 80, 24, 53, 0, 53],
        [35, 80, 25, 54, 0, 54],
        [44, 40, 34, 55, 0, 55],
        [45, 40, 35, 56, 0, 56],
        [46, 40, 36, 57, 0, 57],
        [47, 40, 37, 58, 0, 58],
        [48, 40, 38, 58, 0, 58],
        [49, 40, 39, 58, 0, 59],
        [58, 40, 48, 58, 0, 59],
        [59, 20, 49, 59, 32_000, 59],
    ];

    #[test]
    fn default_table_has_the_published_rows() {
        for [level, quantum_ms, tqexp, slpret, maxwait_s, lwait] in PUBLISHED {
            let row =
                Level::new(quantum_ms, tqexp as u8, slpret as u8, maxwait_s as u16, lwait as u8);
            assert_eq!(Dispatch::SOLARIS.level(level as u8), &row, "level {level}");
        }
    }

    fn rows() -> Vec<String> {
        let row = |level: &Level| toml::Value::try_from(level).expect("numbers").to_string();
        Vec::from(Dispatch::SOLARIS).iter().map(row).collect()
    }

    fn parse(rows: &[String]) -> Result<File, String> {
        let text = format!("dispatch = [\n{}\n]\n", rows.join(",\n"));
        toml::from_str(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn table_round_trips() {
        assert_eq!(parse(&rows()), Ok(File { dispatch: Dispatch::SOLARIS }));
        let text = toml::to_string(&File { dispatch: Dispatch::SOLARIS }).expect("numbers");
        assert_eq!(toml::from_str(&text), Ok(File { dispatch: Dispatch::SOLARIS }));
    }

    #[test]
    fn invalid_row_is_rejected_with_its_line_and_range() {
        for (row, why) in [
            ("[0, 0, 50, 0, 50]", "scheduler.dispatch: quantum is 0; use 1 to 1000000"),
            ("[200, 60, 50, 0, 50]", "scheduler.dispatch: tqexp is 60; use 0 to 59"),
            ("[200, 0, 99, 0, 50]", "scheduler.dispatch: slpret is 99; use 0 to 59"),
            ("[200, 0, 50, 32768, 50]", "scheduler.dispatch: maxwait is 32768; use 0 to 32767"),
            ("[200, 0, 50, 0, 60]", "scheduler.dispatch: lwait is 60; use 0 to 59"),
            ("[200, 0, 50, 0]", "quantum in milliseconds, tqexp, slpret"),
            ("[200, 0, 50, 0, 50, 1]", "quantum in milliseconds, tqexp, slpret"),
        ] {
            let mut rows = rows();
            rows[6] = row.to_string();
            let error = parse(&rows).expect_err("refused");
            assert!(error.contains("line 8") && error.contains(why), "{error}");
        }
    }

    #[test]
    fn wrong_number_of_levels_is_rejected() {
        let error = parse(&rows()[1..]).expect_err("refused");
        assert!(error.contains("line 1"), "{error}");
        assert!(error.contains("scheduler.dispatch has 59 rows; use 60"), "{error}");
    }
}
