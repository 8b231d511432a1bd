//! Advice as text.

use super::finding::{Advice, Basis, Gain, Problem};

/// One advice as paragraphs: what is wrong, the remedies, and the gain.
pub fn paragraphs(advice: &Advice) -> Vec<String> {
    let mut lines = vec![problem(advice)];
    if !advice.source.is_empty() {
        lines.push(advice.source.clone());
    }
    lines.extend(gain(advice));
    lines
}

/// The lock, the kind of problem and the sentence.
pub fn problem(advice: &Advice) -> String {
    if advice.lock.is_empty() {
        return advice.sentence.clone();
    }
    let count = if advice.locks > 1 { format!("{} x ", advice.locks) } else { String::new() };
    let verb = if advice.are_holders { "held by" } else { "waits in" };
    let place = advice.places.first().map_or(String::new(), |it| format!(" ({verb} {it})"));
    format!("{count}{}{place}: {}. {}", advice.lock, advice.problem.name(), advice.sentence)
}

/// A smaller gain is printed as 1.00.
const WORTH_A_NUMBER: f64 = 1.005;

/// The expected gain and its basis.
pub fn gain(advice: &Advice) -> Option<String> {
    let Gain { low, expected, high, part } = advice.gain?;
    let is_of_source =
        advice.based_on == Basis::SyncCharModel || advice.problem == Problem::IoUnderLock;
    let remedy = match (advice.strategy.is_empty(), advice.source.is_empty()) {
        (false, _) => "With the strategy below",
        (true, false) if is_of_source => "With this change",
        _ => "With a faster lock",
    };
    let part = match part {
        whole if whole >= 0.95 => String::new(),
        part => format!(" while threads wait, {:.0} % of the time", 100.0 * part),
    };
    let basis = advice.based_on.name();
    Some(match high < WORTH_A_NUMBER {
        true => format!("{remedy}: no gain, from {basis}."),
        false => format!(
            "{remedy}: {expected:.2} times the throughput ({low:.2} to {high:.2}){part}, from \
             {basis}."
        ),
    })
}

/// The strategy file of all advice, or `None` if no strategy helps. A lock that has several entries
/// keeps the first one, which is of the most worth.
pub fn strategy(all: &[Advice]) -> Option<String> {
    let chosen = all.iter().flat_map(|advice| advice.strategy.iter().map(move |it| (advice, it)));
    let (named, whole): (Vec<_>, Vec<_>) = chosen.partition(|(_, choice)| choice.entry.is_some());
    let process = whole.first().map(|(_, choice)| choice.lock);
    if named.is_empty() && process.is_none() {
        return None;
    }
    let mut text = format!("version = 1\n\n[process]\nlock = \"{}\"\n", process.unwrap_or("libc"));
    let mut known = Vec::new();
    for (advice, choice) in named {
        let Some(entry) = choice.entry.as_ref().filter(|entry| !known.contains(entry)) else {
            continue;
        };
        known.push(entry);
        let why = format!("{}: {}", advice.problem.name(), advice.sentence);
        text += &format!("\n{}", entry.toml(&why, &[("lock", choice.lock)]));
    }
    Some(text)
}
