//! Reading machine files.

use crate::messages;
use crate::parameters::{Count, LONGEST_MWAIT_EXIT_NS, Order, Parameters};

/// Longest time in a machine file, as for sections and pauses of a workload: an hour.
const LONGEST_NS: i64 = 3_600_000_000_000;

/// Greatest slowdown by another context of a core, in thousandths.
const MOST_SLOWDOWN: i64 = 1_000_000;

/// Parses a machine file.
///
/// # Errors
///
/// Returns a message with key and line if the text is not TOML, has an unknown key, lacks a key, or
/// has an invalid value.
pub fn parse(text: &str) -> Result<Parameters, String> {
    let machine: Parameters =
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_string())?;
    let contexts = machine.topology.contexts();
    if contexts > Count::MOST as usize {
        return Err(messages::too_many_contexts(contexts, Count::MOST));
    }
    check_ranges(text)?;
    if machine.memory.mwait_exit_ns.is_some_and(|ns| ns > LONGEST_MWAIT_EXIT_NS) {
        let line = line_of(text, "mwait_exit_ns");
        return Err(messages::mwait_exit_too_long(line, LONGEST_MWAIT_EXIT_NS));
    }
    let scheduler = &machine.scheduler;
    for (table, key, value) in [
        ("memory", "hit_ns", machine.memory.hit_ns), // Else a loop that polls might take no time.
        ("scheduler", "tick_ns", scheduler.tick_ns),
        ("scheduler", "slice_ns", scheduler.slice_ns),
        ("scheduler", "balance_ns", scheduler.balance_ns),
    ] {
        if value == 0 {
            return Err(messages::time_of_zero(line_of(text, key), table, key));
        }
    }
    if scheduler.dispatch.is_some() && scheduler.order != Order::TimeSharing {
        return Err(messages::dispatch_without_time_sharing(line_of(text, "dispatch")));
    }
    if let Some(transactions) = &machine.transactions {
        let (lines, ways) = (transactions.write_lines, transactions.write_ways);
        if lines.get() % ways != 0 {
            let line = line_of(text, "write_ways");
            return Err(messages::uneven_ways(line, ways.get(), lines.get()));
        }
        if transactions.backoff_limit_ns < transactions.backoff_first_ns {
            return Err(messages::backoff_limit_too_short(line_of(text, "backoff_limit_ns")));
        }
    }
    Ok(machine)
}

/// Checks that no time and no slowdown is so large that the simulated clock could overflow.
fn check_ranges(text: &str) -> Result<(), String> {
    let tables: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
    let entries = tables.iter().filter_map(|(name, table)| Some((name, table.as_table()?)));
    for (table, (key, value)) in
        entries.flat_map(|(name, table)| table.iter().map(move |it| (name, it)))
    {
        let most = match key.as_str() {
            key if key.ends_with("_ns") => LONGEST_NS,
            "shared_core_slowdown" => MOST_SLOWDOWN,
            _ => continue,
        };
        let of_list = value.as_array().into_iter().flatten().filter_map(toml::Value::as_integer);
        if value.as_integer().into_iter().chain(of_list).any(|value| value > most) {
            return Err(messages::value_too_large(line_of(text, key), table, key, most));
        }
    }
    Ok(())
}

/// Line number of `key`, from 1; 0 if not found.
fn line_of(text: &str, key: &str) -> usize {
    let has_key = |line: &str| {
        let words = line.split(|it: char| !it.is_alphanumeric() && it != '_');
        let is_comment = line.trim_start().starts_with('#');
        !is_comment && words.into_iter().any(|word| word == key)
    };
    text.lines().position(has_key).map_or(0, |line| line + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets;

    fn text() -> String {
        toml::to_string(&presets::named("server").expect("a preset")).expect("it is one of ours")
    }

    #[test]
    fn preset_round_trips_as_machine_file() {
        for (name, _) in presets::PRESETS {
            let preset = presets::named(name).expect("listed");
            assert_eq!(parse(&toml::to_string(&preset).expect("written")), Ok(preset), "{name}");
        }
    }

    #[test]
    fn invalid_value_is_rejected_with_key_and_line() {
        let changed = |key: &str, value: &str| {
            let line = |line: &str| {
                if line.starts_with(key) { format!("{key} = {value}") } else { line.to_string() }
            };
            text().lines().map(line).collect::<Vec<_>>().join("\n")
        };
        let line_of =
            |key: &str| text().lines().position(|line| line.starts_with(key)).expect("a key") + 1;
        for (key, value, why) in [
            ("sockets", "0", "at least one"),
            ("contexts_per_core", "9999", "at most"),
            ("hit_ns", "-1", "-1"),
            ("hit_ns", "0", "is 0"),
            ("switch_ns", "\"long\"", "string"),
            ("mwait_exit_ns", "1000001", "at most 1000000"),
            ("memory_ns", "3600000000001", "at most 3600000000000"),
            ("shared_core_slowdown", "1000001", "at most 1000000"),
            ("tick_work_ns", "[0, 0, 0, 0, 0, 0, 3600000000001]", "at most 3600000000000"),
            ("tick_ns", "0", "is 0"),
            ("order", "\"fifo\"", "time-sharing"),
            ("policy", "\"coin\"", "requester"),
            ("read_lines", "0", "nonzero"),
            ("write_ways", "7", "does not divide"),
            ("backoff_limit_ns", "1", "shorter"),
        ] {
            let error = parse(&changed(key, value)).expect_err("refused");
            assert!(error.contains(&format!("line {}", line_of(key))), "{error}");
            assert!(error.contains(key) && error.contains(why), "{error}");
        }
        let inline = parse("topology = { sockets = 0 }").expect_err("refused");
        assert!(inline.contains("line 1"), "{inline}");
        assert_eq!(super::line_of("a.tick_ns = 0", "tick_ns"), 1);
        assert_eq!(super::line_of("# tick_ns\nbusy_tick_ns = 1\ntick_ns = 0", "tick_ns"), 3);
        let error = parse(&text().replace("hit_ns", "hit_nanoseconds")).expect_err("refused");
        assert!(
            error.contains("unknown field `hit_nanoseconds`") && error.contains("line "),
            "{error}"
        );
    }
}
