//! Remarks in reports: what was not seen or distorts the numbers. One function each.

use crate::report::Clock;

pub(crate) fn sets_cut_short(locks: usize) -> String {
    format!("Address sets of {} were cut short: their gains are upper bounds.", count(locks))
}

pub(crate) fn windows_not_filled(locks: usize) -> String {
    format!(
        "{} did not fill a window for each number of processors: those estimates are of one short \
         window.",
        count(locks)
    )
}

pub(crate) fn too_few_threads(locks: usize, processors: u32) -> String {
    format!(
        "{} had no two threads to compare, hence `-` for an estimate: run at least {processors} \
         threads.",
        count(locks)
    )
}

pub(crate) fn no_sections() -> &'static str {
    "No critical section was seen: the program took no supported lock, or none while sampled."
}

/// `longest` is the name of the reader-writer lock that was held longest, `others` the number of
/// further ones.
pub(crate) fn readers_run_at_once(longest: &str, others: usize) -> String {
    let locks = match others {
        0 => format!("{longest} is a reader-writer lock"),
        1 => format!("{longest} and another lock are reader-writer locks"),
        others => format!("{longest} and {others} other locks are reader-writer locks"),
    };
    format!("{locks}: readers run at once already, so these gains are upper bounds.")
}

pub(crate) fn locks_not_sampled(locks: usize, clock: Clock) -> String {
    let held = match clock {
        Clock::Native => " held in the native run",
        Clock::Instructions => "",
    };
    format!("Not listed: {}{held} without a sampled section.", count(locks))
}

fn count(locks: usize) -> String {
    if locks == 1 { "1 lock".into() } else { format!("{locks} locks") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OptionsError;

    #[test]
    fn every_message() {
        let remarks = [
            sets_cut_short(1),
            windows_not_filled(20),
            too_few_threads(20, 128),
            no_sections().to_string(),
            readers_run_at_once("cache", 20),
            locks_not_sampled(3, Clock::Native),
        ];
        // Remarks are sentences in a report; errors follow a program's name.
        for remark in &remarks {
            println!("{remark}");
            assert!(remark.ends_with('.') && remark.len() <= 120, "{remark}");
        }
        for error in [OptionsError::Processors, OptionsError::Zero].map(|error| error.to_string()) {
            println!("{error}");
            assert!(!error.ends_with('.') && error.len() <= 120, "{error}");
        }
        let functions = include_str!("messages.rs").matches("\npub(crate) fn ").count();
        assert_eq!(functions, remarks.len(), "list each message function above");
    }
}
