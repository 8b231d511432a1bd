//! Which algorithm a strategy file gives to which lock.

mod support;

use std::fs;
use std::path::Path;

use support::mixed::{mixed, unconvoy, under};
use support::{compile, compile_file, library, plain, run};

/// The numbers that the library gives to locks: of no rule, of the first choices, and of libc.
const DEFAULT: u8 = 1;
const FIRST: u8 = 2;
const LIBC: u8 = 255;

/// Runs `strategy.c` under a strategy file, and returns its output.
#[track_caller]
fn numbers(directory: &Path, entries: &str, arguments: &[&Path]) -> String {
    let program = compile(directory, "strategy.c", &[]);
    let file = directory.join("strategy.toml");
    fs::write(&file, format!("version = 1\n{entries}")).expect("a file in the directory");
    let finished = run(under(&file, &program).args(arguments)).success("strategy.c");
    assert_eq!(finished.stderr, "");
    finished.text()
}

/// An entry.
fn entry(key: &str, name: &str, lock: &str) -> String {
    format!("[[lock]]\n{key} = \"{name}\"\nlock = \"{lock}\"\n")
}

#[test]
fn locks_get_algorithms_by_variable_initialisation_and_first_acquisition() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let entries = [
        entry("symbol", "alone", "mcs"),
        entry("symbol", "table+0x78", "ttas"),
        entry("symbol", "tabl?", "tas"),
        entry("symbol", "shared_state", "libc"),
        entry("initialised", "make", "libc"),
        entry("first-taken", "take", "clh"),
        entry("first-taken", "try_*", "ticket"),
    ];
    let output = numbers(directory.path(), &entries.concat(), &[]);
    let (mcs, ttas, tas, clh, ticket) = (FIRST, FIRST + 1, FIRST + 2, FIRST + 4, FIRST + 5);
    let expected = format!(
        "alone {mcs} table {tas} {ttas} unnamed {DEFAULT} made {LIBC} taken {clh} tried {ticket} \
         first {DEFAULT} second {DEFAULT} shared {LIBC}\n\
         again {DEFAULT} alone {mcs} robust 0 child {tas}\n"
    );
    assert_eq!(output, expected);
}

#[test]
fn return_address_distinguishes_calls_of_one_function() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "strategy.c", &[]);
    let disassembly = std::process::Command::new("objdump")
        .args(["-d", "--no-show-raw-insn", "--disassemble=take_two"])
        .arg(&program)
        .output()
        .expect("objdump runs (apt-get install binutils)");
    let text = String::from_utf8_lossy(&disassembly.stdout).into_owned();
    let at = |line: &str| u64::from_str_radix(line.split(':').next().unwrap().trim(), 16).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(":\t")).collect();
    let sites: Vec<u64> = lines
        .windows(2)
        .filter(|pair| pair[0].contains("<pthread_mutex_lock@plt>"))
        .map(|pair| at(pair[1]) - at(lines[0]))
        .collect();
    let [first, second] = sites[..] else { panic!("two calls in:\n{text}") };
    let entries = [
        entry("first-taken", &format!("take_two+{first:#x}"), "libc"),
        entry("first-taken", &format!("take_two+{second:#x}"), "mcs"),
        entry("first-taken", "take_two", "ttas"),
    ];
    let output = numbers(directory.path(), &entries.concat(), &[]);
    let mcs = FIRST + 1;
    assert!(output.contains(&format!("first {LIBC} second {mcs} ")), "{output}");
}

#[test]
fn libc_serves_all_locks_but_the_named_one() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let entries = format!("[process]\nlock = \"libc\"\n{}", entry("symbol", "alone", "default"));
    let output = numbers(directory.path(), &entries, &[]);
    let loiter = FIRST + 1;
    let start = format!("alone {loiter} table {LIBC} {LIBC} unnamed {LIBC} made {LIBC} ");
    assert!(output.starts_with(&start), "{output}");
}

#[test]
fn object_loaded_later_is_named_by_its_path() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = directory.path().join("plugin.c");
    fs::write(&source, "#include <pthread.h>\npthread_mutex_t loaded_lock;\n").expect("a file");
    let object = compile_file(directory.path(), &source, &["-shared", "-fPIC"]);
    let object_key = format!("object = \"{}\"\n", object.display());
    let entries = entry("symbol", "loaded_lock", "mcs") + &object_key;
    let output = numbers(directory.path(), &entries, &[&object]);
    assert!(output.ends_with(&format!("loaded {FIRST}\n")), "{output}");
}

#[test]
fn locks_of_a_mixed_strategy_differ() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "strategy.c", &[]);
    let finished = run(&mut mixed(&program)).success("a mixed strategy");
    assert_eq!(finished.stderr, "");
    let text = finished.text();
    let first_line = text.lines().next().unwrap_or_default();
    let mut numbers: Vec<&str> = first_line
        .split(' ')
        .filter(|word| word.chars().all(|digit| digit.is_ascii_digit()))
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert!(numbers.len() >= 5, "{text}");
}

#[test]
fn text_of_another_version_is_ignored_with_one_line() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "strategy.c", &[]);
    let mut command = plain(&program);
    command.env("LD_PRELOAD", library()).env("UNCONVOY_STRATEGY", "2 c:libc");
    let finished = run(&mut command).success("a strategy of another version");
    assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    assert!(finished.stderr.contains("another version"), "{}", finished.stderr);
    assert!(finished.text().starts_with("alone 0 table 0 0 "), "{}", finished.text());
    // A damaged text of this version: what can be read is used.
    for damaged in ["1 c:mcs", "1 s:1-2=9 c:mcs+control d:7", "1 m:zz x"] {
        command.env("UNCONVOY_STRATEGY", damaged);
        let finished = run(&mut command).success(damaged);
        assert_eq!(finished.stderr, "");
    }
}

#[test]
fn program_that_replaces_itself_keeps_the_strategy_out_of_other_programs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = compile(directory.path(), "strategy.c", &[]);
    let file = directory.path().join("strategy.toml");
    fs::write(&file, format!("version = 1\n{}", entry("symbol", "alone", "mcs"))).expect("a file");
    // `env` and the program share one environment. The entry names a variable of the program, which
    // is named by its path, and no variable of `env`.
    let named = format!("object = \"{}\"\n", program.display());
    fs::write(&file, fs::read_to_string(&file).unwrap() + &named).expect("a file");
    let mut command = plain(unconvoy());
    command.env("UNCONVOY_LIBRARY", library());
    command.args(["run", "--strategy"]).arg(&file).args(["--", "env"]).arg(&program);
    let finished = run(&mut command).success("a program started by env");
    assert_eq!(finished.stderr, "");
    assert!(finished.text().starts_with(&format!("alone {FIRST} ")), "{}", finished.text());
}

/// A thread waits for each lock in turn while another holds it for 50 ms, ten times.
const HELD: &str = "\
#define _DEFAULT_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
pthread_mutex_t hasty_lock, patient_lock;
static atomic_int arriving;
static void *wait_for(void *lock)
{
	arriving = 1;
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
	return 0;
}
int main(void)
{
	for (int i = 0; i < 20; i++) {
		pthread_mutex_t *lock = i % 2 ? &hasty_lock : &patient_lock;
		pthread_t waiter;
		arriving = 0;
		pthread_mutex_lock(lock);
		pthread_create(&waiter, 0, wait_for, lock);
		while (!arriving)
			usleep(1000);
		usleep(50000);
		pthread_mutex_unlock(lock);
		pthread_join(waiter, 0);
	}
	return 0;
}
";

#[test]
fn spinning_time_of_an_entry_decides_whether_waiters_sleep() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = directory.path().join("held.c");
    fs::write(&source, HELD).expect("a file");
    let program = compile_file(directory.path(), &source, &["-rdynamic"]);
    let file = directory.path().join("strategy.toml");
    // The holder would have to lose its processor for 10 s before a patient waiter sleeps.
    let entry = |name, us| format!("{}load = \"park:{us}\"\n", entry("symbol", name, "ttas"));
    let entries = entry("hasty_lock", "1") + &entry("patient_lock", "10000000");
    fs::write(&file, format!("version = 1\n{entries}")).expect("a file in the directory");
    let statistics = directory.path().join("statistics.json");
    let finished = run(under(&file, &program).env("UNCONVOY_STATS", &statistics)).success("held.c");
    assert_eq!(finished.stderr, "");
    let text = fs::read(&statistics).expect("statistics");
    let statistics: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    let slept = |name: &str| {
        let locks = statistics["locks"].as_array().expect("locks");
        let is_named = |lock: &&serde_json::Value| {
            lock["where"].as_str().is_some_and(|place| place.starts_with(name))
        };
        let lock = locks.iter().find(is_named).unwrap_or_else(|| panic!("{name}: {statistics:#}"));
        lock["slept"].as_u64().expect("a number")
    };
    assert_eq!(slept("patient_lock"), 0, "{statistics:#}");
    assert_ne!(slept("hasty_lock"), 0, "{statistics:#}");
}
