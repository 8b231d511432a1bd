//! The evaluation compares what a search finds with the best of twelve configurations
//! (scripts/bench-tune.py). Each of them must be a candidate of a search, and mean the same.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use unconvoy::catalogue::environment::SPECIAL_SET;
use unconvoy::catalogue::{Availability, availability};

use super::candidates::{Candidate, Facts, of_process};
use super::costs::Costs;
use super::known::NAMED;
use crate::compare::command::command;
use crate::compare::configuration::Configuration;

/// Configurations that a search tries besides the evaluation's.
const OTHERS: [&str; 2] = ["loiter+none", "loiter+malthus"];

/// The evaluation's configurations: eleven, and the twelfth of machines with transactions and of
/// machines without.
fn evaluated() -> (Vec<&'static str>, [&'static str; 2]) {
    let script = include_str!("../../../../scripts/bench-tune.py");
    let list = script.split_once("CONFIGURATIONS = (").expect("a list").1;
    let list = list.split_once(')').expect("its end").0;
    let names = list.split([' ', '\n', '"', ',']).filter(|name| !name.is_empty()).collect();
    let last = script.split_once("[*CONFIGURATIONS, \"").expect("a twelfth").1;
    let (with, rest) = last.split_once("\" if has_transactions() else \"").expect("a choice");
    (names, [with, rest.split_once('"').expect("its end").0])
}

/// All candidates for the whole process on two processors.
fn candidates(threads: u32) -> Vec<Candidate> {
    let costs = Costs { is_known: true, seconds: 1.0, waited_ns: 600_000_000, ..Costs::default() };
    of_process(&costs, Facts { processors: 2, threads: Some(threads) }, NAMED.len())
}

/// The environment in which a configuration runs the program.
fn environment(configuration: &Configuration) -> BTreeMap<OsString, Option<OsString>> {
    let command = command(&["true".into()], configuration, Some(Path::new("/x/libunconvoy.so")));
    let mut all: BTreeMap<OsString, Option<OsString>> =
        command.get_envs().map(|(key, value)| (key.into(), value.map(Into::into))).collect();
    // The two values mean the same.
    let special_set = all.get_mut(OsStr::new(SPECIAL_SET.name)).and_then(Option::as_mut);
    if let Some(value) = special_set.filter(|value| *value == "1") {
        *value = "refined".into();
    }
    all
}

#[test]
fn evaluated_configurations_are_candidates_on_two_processors() {
    let (mut names, [with, without]) = evaluated();
    assert_eq!(names.len(), 11, "{names:?}");
    let has_transactions = availability("elided") == Availability::Full;
    names.push(if has_transactions { with } else { without });
    for threads in [2, 8] {
        let candidates = candidates(threads);
        for name in &names {
            let is_tried = candidates.iter().any(|candidate| candidate.name == *name);
            assert!(is_tried, "{name} is not tried with {threads} threads");
        }
    }
}

#[test]
fn search_and_evaluation_have_the_same_names() {
    let (evaluated, last) = evaluated();
    let mut expected = [evaluated, last.to_vec(), OTHERS.to_vec()].concat();
    let mut names: Vec<&str> = NAMED.iter().map(|named| named.name).collect();
    expected.sort_unstable();
    names.sort_unstable();
    assert_eq!(names, expected);
    let page = include_str!("../../../../docs/reference/tune.md");
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "docs/reference/tune.md lacks {name}");
    }
}

#[test]
fn candidates_run_as_the_configurations_of_their_names() {
    for candidate in candidates(2) {
        let found = candidate.configuration(OsStr::new("/bin/true")).expect(&candidate.name);
        let named = Configuration::parse(&candidate.name).expect(&candidate.name);
        assert_eq!(environment(&found), environment(&named), "{}", candidate.name);
    }
}
