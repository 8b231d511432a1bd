//! The messages that the library prints on standard error, one function each.

use core::fmt::Write as _;
use std::io;

use unconvoy_locks::catalogue::Entry;
use unconvoy_locks::runtime::Line;

use crate::identity;

/// libc lacks the function `name`, which the program has called.
pub(crate) fn missing_libc_function(name: &str) -> Line {
    Line::new(format_args!("libc has no {name}: aborting; run the program without unconvoy"))
}

/// The sanitizer or valgrind tool `watcher` needs libc's locks.
pub(crate) fn watched_program(watcher: &str) -> Line {
    Line::new(format_args!(
        "this program runs under {watcher}, which watches libc's locks: nothing is replaced"
    ))
}

/// The program, or a library before this one, defines pthread functions.
pub(crate) fn program_with_own_functions() -> Line {
    Line::new(format_args!("this program has its own pthread functions: nothing is replaced"))
}

/// libc keeps the attributes of condition variables in a place that this library does not know.
pub(crate) fn unknown_condition_variables() -> Line {
    Line::new(format_args!(
        "this libc has condition variables of an unknown layout: nothing is replaced"
    ))
}

/// While the library read its configuration, a function that it called has taken locks.
pub(crate) fn interfering_library() -> Line {
    Line::new(format_args!(
        "another library takes locks in functions that unconvoy needs: nothing is replaced"
    ))
}

/// `rules` is not the name of a set of load control's rules, or this library cannot leave any out.
pub(crate) fn no_such_rules(rules: &str) -> Line {
    Line::new(format_args!(
        "UNCONVOY_RULES={rules}: unknown, or this library was built without the feature \
         `ablation`; keeping all rules"
    ))
}

/// The sensor that the environment names cannot be used. `why` is the whole message.
pub(crate) fn missing_sensor(why: &str) -> Line {
    Line::new(format_args!("{why}"))
}

/// This machine can run `lock` only in part.
pub(crate) fn reduced_lock(lock: &str, reason: &str) -> Line {
    Line::new(format_args!("{lock}: {reason}; running without it"))
}

pub(crate) fn refused_lock(lock: &str, reason: &str) -> Line {
    Line::new(format_args!("{lock}: {reason}; using the default lock"))
}

/// `variable` has a value that is not the name of one of the `entries`.
pub(crate) fn unknown_name(variable: &str, value: &str, entries: &[Entry]) -> Line {
    let mut line = Line::new(format_args!("{variable}={value} is not one of:"));
    for entry in entries {
        let _ = write!(line, " {}", entry.name);
    }
    let _ = write!(line, "; using {}", entries[0].name);
    line
}

/// `variable` is not a number of milliseconds within `least` and `most`.
pub(crate) fn invalid_milliseconds(variable: &str, value: &str, least: f64, most: f64) -> Line {
    Line::new(format_args!(
        "{variable}={value} is not a number of milliseconds from {least} to {most}; \
         using the default"
    ))
}

pub(crate) fn unknown_special_set(value: &str) -> Line {
    Line::new(format_args!("UNCONVOY_SSC={value} is not one of: 0 1 refined published; using 0"))
}

pub(crate) fn no_special_set_unreadable_masks() -> Line {
    Line::new(format_args!(
        "no special set: affinity masks cannot be read here (a system-call filter?)"
    ))
}

pub(crate) fn no_special_set_forbidden_masks() -> Line {
    Line::new(format_args!(
        "no special set: affinity masks cannot be set here (a system-call filter?)"
    ))
}

pub(crate) fn no_special_set_one_processor() -> Line {
    Line::new(format_args!("no special set: the process has only one processor"))
}

pub(crate) fn strategy_of_other_version() -> Line {
    Line::new(format_args!(
        "UNCONVOY_STRATEGY is of another version: running without it; use one version of unconvoy"
    ))
}

/// The C library lacks the function that finds the module of an address.
pub(crate) fn no_strategy_old_libc() -> Line {
    Line::new(format_args!("a strategy for single locks needs glibc 2.35: running without it"))
}

pub(crate) fn no_memory_for_strategy() -> Line {
    Line::new(format_args!("no memory for the strategy: running without it"))
}

/// The statistics file cannot be opened when the program starts.
pub(crate) fn unwritable_statistics(path: &str, error: &io::Error) -> Line {
    Line::new(format_args!("cannot write statistics to {path}: {error}; running without them"))
}

/// The statistics cannot be written when the program ends.
pub(crate) fn lost_statistics(path: &str, error: &io::Error) -> Line {
    Line::new(format_args!("cannot write statistics to {path}: {error}; they are lost"))
}

pub(crate) fn no_memory_for_statistics() -> Line {
    Line::new(format_args!("no memory for statistics; running without them"))
}

/// The profile cannot be created when the program starts.
pub(crate) fn unwritable_profile(path: &str, error: &io::Error) -> Line {
    Line::new(format_args!("cannot write the profile to {path}: {error}; running without it"))
}

/// The profile of a process that the profiled program started cannot be created. `error` is the
/// kernel's number, because this may not allocate.
pub(crate) fn no_profile_of_child(error: i32) -> Line {
    let pid = identity::process();
    Line::new(format_args!("cannot create the profile of process {pid} (error {error})"))
}

/// The metrics could not be written.
pub(crate) fn unwritable_metrics(path: &str, error: &io::Error) -> Line {
    Line::new(format_args!("cannot write the metrics to {path}: {error}; running without them"))
}

/// Part of [`unwritable_metrics`].
pub(crate) fn not_a_regular_file() -> &'static str {
    "it is not a regular file"
}

#[cfg(test)]
mod tests {
    use unconvoy_locks::catalogue::LOAD;

    use super::*;

    #[test]
    fn every_message() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        let lines = [
            missing_libc_function("pthread_mutex_clocklock"),
            watched_program("ThreadSanitizer"),
            program_with_own_functions(),
            unknown_condition_variables(),
            interfering_library(),
            missing_sensor("/proc/loadavg cannot be read; using schedstat"),
            reduced_lock("slice", "this kernel has no time-slice extension"),
            refused_lock("elided", "this processor has no transactions"),
            unknown_name("UNCONVOY_LOAD", "nosuch", &LOAD[..3]),
            invalid_milliseconds("UNCONVOY_INTERVAL_MS", "0.4", 0.5, 1000.0),
            unknown_special_set("nosuch"),
            no_such_rules("nosuch"),
            no_special_set_unreadable_masks(),
            no_special_set_forbidden_masks(),
            no_special_set_one_processor(),
            unwritable_statistics("no/such/stats.json", &error),
            lost_statistics("stats.json", &error),
            no_memory_for_statistics(),
            strategy_of_other_version(),
            no_strategy_old_libc(),
            no_memory_for_strategy(),
            unwritable_profile("no/such/profile", &error),
            no_profile_of_child(libc::ENOSPC),
            unwritable_metrics("no/such/server.prom", &error),
        ];
        for line in &lines {
            let text = line.text();
            println!("{text}");
            assert!(text.len() <= 120, "{} columns: {text}", text.len());
            assert!(!text.ends_with('.') && !text.contains('\n'), "{text}");
        }
        let functions = include_str!("message.rs")
            .lines()
            .filter(|line| line.starts_with("pub(crate) fn ") && line.contains("-> Line"));
        assert_eq!(functions.count(), lines.len(), "message functions, and samples above");
    }
}
