//! Looks the names of a strategy up in a program's files.

use std::collections::BTreeMap;

use unconvoy::catalogue::strategy::{Choice, MOST_CHOICES, Names, Rule};
use unconvoy::catalogue::{Availability, availability};

use super::file::{Chosen, Entry, Kind, Place, Strategy};
use super::modules::Module;
use crate::messages::strategy as messages;

/// Compilers align functions to 16 bytes: a smaller gap between two of them has no code.
const ALIGNMENT: u64 = 16;

/// A strategy for one program.
pub struct Resolved<'a> {
    pub choices: Vec<Choice<'a>>,
    /// Number of the choice for locks that no rule names, if it is not the process's pair.
    pub default: Option<u8>,
    pub rules: Vec<Rule>,
    /// Entries that have no effect.
    pub warnings: Vec<String>,
}

/// A part of a module, without overlap: start, end, and number of the choice.
type Part = (u64, u64, u8);

/// One name's range in a module.
#[derive(Clone, Copy)]
struct Range<'a> {
    start: u64,
    end: u64,
    choice: u8,
    entry: &'a Entry,
}

/// The rules for a program's files.
///
/// # Errors
///
/// Two entries of the same rank choose different algorithms for one range, or there are more
/// different choices than the library takes.
pub fn resolve<'a>(strategy: &'a Strategy, modules: &[Module]) -> Result<Resolved<'a>, String> {
    let mut resolved =
        Resolved { choices: Vec::new(), default: None, rules: Vec::new(), warnings: Vec::new() };
    if strategy.default_is_libc {
        resolved.choices.push(Choice::Libc);
        resolved.default = Some(0);
    }
    let mut ranges: BTreeMap<(Names, u64), Vec<Range<'_>>> = BTreeMap::new();
    for entry in &strategy.entries {
        let Some(choice) = usable(entry, &mut resolved)? else { continue };
        let before: usize = ranges.values().map(Vec::len).sum();
        let mut other_build = None;
        for module in modules.iter().filter(|it| entry.is_in(&it.path) || entry.is_in(&it.listed)) {
            if entry.build_id.as_ref().is_some_and(|id| *id != module.build_id) {
                if !places(entry, module).is_empty() {
                    other_build = Some(module);
                }
                continue;
            }
            for (start, end) in places(entry, module) {
                for names in names(entry) {
                    let range = Range { start, end, choice, entry };
                    ranges.entry((names, module.identity)).or_default().push(range);
                }
            }
        }
        if ranges.values().map(Vec::len).sum::<usize>() == before {
            let at = entry.place_at(&strategy.path);
            let warning = match other_build {
                Some(module) => messages::other_build(&at, &module.file_name(), &module.build_id),
                None => messages::matches_nothing(&at, entry.name.text(), entry.place.noun()),
            };
            resolved.warnings.push(warning);
        }
    }
    for ((names, module), ranges) in ranges {
        let disjoint = disjoint(ranges).map_err(|(first, second)| {
            messages::contradiction(&second.place_at(&strategy.path), first.line)
        })?;
        resolved.rules.extend(disjoint.into_iter().map(|(start, end, choice)| Rule {
            names,
            module,
            start,
            end,
            choice,
        }));
    }
    resolved.rules.sort_by_key(|rule| (rule.module, rule.names, rule.start));
    Ok(resolved)
}

/// The number of an entry's choice, if this machine can run it.
///
/// # Errors
///
/// There are too many choices.
fn usable<'a>(entry: &'a Entry, resolved: &mut Resolved<'a>) -> Result<Option<u8>, String> {
    let choice = match &entry.chosen {
        Chosen::Libc => Choice::Libc,
        Chosen::Pair(lock, load) => Choice::Pair(lock, load),
    };
    if let Choice::Pair(lock, _) = choice {
        match availability(lock) {
            Availability::Full => {}
            Availability::Reduced(reason) => {
                resolved.warnings.push(messages::reduced(&entry.lock_at, lock, reason));
            }
            Availability::Refused(reason) => {
                resolved.warnings.push(messages::refused(&entry.lock_at, lock, reason));
                return Ok(None);
            }
        }
    }
    let known = resolved.choices.iter().position(|known| *known == choice);
    let index = known.unwrap_or_else(|| {
        resolved.choices.push(choice);
        resolved.choices.len() - 1
    });
    let number = u8::try_from(index).ok().filter(|_| index < MOST_CHOICES);
    number.map(Some).ok_or_else(|| messages::too_many_choices(&entry.lock_at, MOST_CHOICES))
}

/// What an entry's addresses are.
fn names(entry: &Entry) -> impl Iterator<Item = Names> {
    let [mutex, rwlock] = match entry.place {
        Place::Symbol => [Names::Mutex, Names::RwLock],
        Place::Initialised => [Names::InitialisedMutex, Names::InitialisedRwLock],
        Place::FirstTaken => [Names::FirstTakenMutex, Names::FirstTakenRwLock],
    };
    let is_wanted = |kind| entry.kind.is_none_or(|wanted| wanted == kind);
    [(mutex, Kind::Mutex), (rwlock, Kind::RwLock)]
        .into_iter()
        .filter(move |(_, kind)| is_wanted(*kind))
        .map(|(names, _)| names)
        .collect::<Vec<_>>()
        .into_iter()
}

/// The ranges of a module's addresses that an entry names.
fn places(entry: &Entry, module: &Module) -> Vec<(u64, u64)> {
    let wants_function = entry.place != Place::Symbol;
    let matching = module.symbols.iter().filter(|symbol| {
        symbol.is_function == wants_function && entry.name.matches_symbol(&symbol.name)
    });
    let range = |address: u64, size: u64| match entry.name.offset {
        None => Some((address, address + size)),
        Some(offset) if wants_function => {
            // A place is a return address. The call's last byte is before it.
            (1..=size).contains(&offset).then(|| (address + offset - 1, address + offset))
        }
        Some(offset) => (offset < size).then(|| (address + offset, address + offset + 1)),
    };
    let mut found: Vec<_> =
        matching.filter_map(|symbol| range(symbol.address, symbol.size)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Splits overlapping ranges so that the highest rank applies. Neighbouring functions of one choice
/// become one range. `Err`: two entries of one rank that contradict each other.
fn disjoint(mut ranges: Vec<Range<'_>>) -> Result<Vec<Part>, (&Entry, &Entry)> {
    let mut bounds: Vec<u64> = ranges.iter().flat_map(|range| [range.start, range.end]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    ranges.sort_by_key(|range| range.start);
    let (mut next, mut active) = (0, Vec::<Range<'_>>::new());
    let mut result: Vec<Part> = Vec::new();
    let mut last_is_function = false;
    for pair in bounds.windows(2) {
        let (start, end) = (pair[0], pair[1]);
        while next < ranges.len() && ranges[next].start <= start {
            active.push(ranges[next]);
            next += 1;
        }
        active.retain(|range| range.end > start);
        let Some(best) = active.iter().max_by_key(|range| range.entry.name.rank()) else {
            continue;
        };
        let rival = active.iter().find(|range| {
            range.entry.name.rank() == best.entry.name.rank() && range.choice != best.choice
        });
        if let Some(rival) = rival {
            let (first, second) = (best.entry, rival.entry);
            return Err(if first.line < second.line { (first, second) } else { (second, first) });
        }
        let is_function = best.entry.place != Place::Symbol && best.entry.name.offset.is_none();
        // Between two variables, or two calls of a function, there may be others.
        let gap = if is_function && last_is_function { ALIGNMENT } else { 1 };
        match result.last_mut() {
            Some(last) if last.2 == best.choice && last.1.next_multiple_of(gap) >= start => {
                last.1 = end;
            }
            _ => result.push((start, end, best.choice)),
        }
        last_is_function = is_function;
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::super::modules::Symbol;
    use super::*;
    use std::path::Path;

    /// The ranges of the rules for mutexes that have been first taken or have a symbol.
    fn ranges(text: &str, symbols: &[(&str, u64, u64, bool)]) -> Vec<(u64, u64)> {
        let symbol = |&(name, address, size, is_function): &(&str, u64, u64, bool)| Symbol {
            name: name.into(),
            address,
            size,
            is_function,
        };
        let symbols = symbols.iter().map(symbol).collect();
        let build_id = String::new();
        let (path, listed) = ("/p".into(), "/p".into());
        let module = Module { path, listed, identity: 1, build_id, symbols };
        let entries = format!("version = 1\n{text}");
        let strategy = Strategy::parse(Path::new("s.toml"), &entries).expect("valid");
        let rules = resolve(&strategy, &[module]).expect("no contradiction").rules;
        rules.iter().map(|rule| (rule.start, rule.end)).collect()
    }

    fn entry(name: &str) -> String {
        format!("[[lock]]\n{name}\nkind = \"mutex\"\nlock = \"libc\"\n")
    }

    #[test]
    fn more_choices_than_the_library_takes_are_refused() {
        let entries = |count: usize| {
            let entry =
                |index| format!("[[lock]]\nsymbol = \"a{index}\"\nload = \"park:{index}\"\n");
            let text = (1..=count).map(entry).collect::<String>();
            Strategy::parse(Path::new("s.toml"), &format!("version = 1\n{text}")).expect("valid")
        };
        assert!(resolve(&entries(MOST_CHOICES), &[]).is_ok());
        let too_many = entries(MOST_CHOICES + 1);
        let why = resolve(&too_many, &[]).err().expect("an error");
        assert!(why.contains("more than 200 different choices"), "{why}");
    }

    #[test]
    fn only_neighbouring_functions_become_one_range() {
        let functions = [("setup", 0x100, 0x39, true), ("tear_down", 0x140, 0x20, true)];
        let whole = entry("first-taken = \"setup\"") + &entry("first-taken = \"tear_down\"");
        assert_eq!(ranges(&whole, &functions), [(0x100, 0x160)]);
        let calls = entry("first-taken = \"setup+0x11\"") + &entry("first-taken = \"setup+0x21\"");
        assert_eq!(ranges(&calls, &functions), [(0x110, 0x111), (0x120, 0x121)]);
        let variables = [("a", 0x200, 40, false), ("c", 0x22c, 40, false)];
        let both = entry("symbol = \"a\"") + &entry("symbol = \"c\"");
        assert_eq!(ranges(&both, &variables), [(0x200, 0x228), (0x22c, 0x254)]);
    }
}
