//! A strategy that gives neighbouring locks of a program different algorithms.
//!
//! The file names the program's call sites, functions and variables one by one, and chooses from a
//! list of pairs in turn. Every fourth call site has no entry, so that the functions around it
//! decide; locks that no entry names are served by the process's pair.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use object::{Object, ObjectSymbol, SymbolKind};
use unconvoy_locks::catalogue::{Availability, availability};

use super::parts::{built, library, plain};
use super::room;

/// The choices of the strategy: an entry's `lock` and `load`.
const CHOICES: [(&str, &str); 13] = [
    ("mcs", "control"),
    ("libc", ""),
    ("ttas", "park"),
    ("default", "default"),
    ("futex", "none"),
    ("tpmcs", "yield"),
    ("elided", "control"),
    ("ticket", "adaptive"),
    ("clh", "park"),
    ("default", "gcr"),
    ("tas", "backoff"),
    ("default", "malthus"),
    ("requester", "published"),
];

/// The functions that initialise a lock or take it for the first time.
const FUNCTIONS: [(&str, &str); 2] = [("_init@plt>", "initialised"), ("lock@plt>", "first-taken")];

/// The `unconvoy` command beside the library.
pub fn unconvoy() -> &'static Path {
    static COMMAND: OnceLock<PathBuf> = OnceLock::new();
    COMMAND.get_or_init(|| {
        let beside = library().with_file_name("unconvoy");
        if beside.is_file() { beside } else { built("unconvoy-cli", "--bin", "unconvoy") }
    })
}

/// A command that runs `program` under its mixed strategy.
pub fn mixed(program: &Path) -> Command {
    let file = program.with_extension("toml");
    fs::write(&file, strategy_of(program)).expect("a file beside the program");
    under(&file, program)
}

/// A command that runs `program` under a strategy file.
pub fn under(file: &Path, program: &Path) -> Command {
    let mut command = plain(unconvoy());
    command.env("UNCONVOY_LIBRARY", library());
    command.arg("run").arg("--strategy").arg(file).arg("--").arg(program);
    command
}

/// The entries of a strategy file, with a choice for each.
struct Entries {
    text: String,
    choices: Vec<(&'static str, &'static str)>,
    count: usize,
}

impl Entries {
    fn add(&mut self, key: &str, name: &str) {
        let (lock, load) = self.choices[self.count % self.choices.len()];
        self.count += 1;
        let _ = write!(self.text, "\n[[lock]]\n{key} = \"{name}\"\nlock = \"{lock}\"\n");
        if !load.is_empty() {
            let _ = writeln!(self.text, "load = \"{load}\"");
        }
    }
}

fn strategy_of(program: &Path) -> String {
    let is_usable =
        |lock: &str| lock == "libc" || !matches!(availability(lock), Availability::Refused(_));
    let choices = CHOICES.into_iter().filter(|(lock, _)| is_usable(lock)).collect();
    let mut entries = Entries { text: "version = 1\n".into(), choices, count: 0 };
    for (index, (key, site)) in call_sites(program).iter().enumerate() {
        if index % 4 != 3 {
            entries.add(key, site);
        }
    }
    let bytes = fs::read(program).expect("the program");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    // A variable that is smaller than a mutex is no lock, and an entry for it would match nothing.
    let smallest = |kind| if kind == SymbolKind::Data { 40 } else { 1 };
    let mut names: Vec<(u64, SymbolKind, &str)> = file
        .symbols()
        .filter(|symbol| symbol.is_definition() && symbol.size() >= smallest(symbol.kind()))
        .filter_map(|symbol| Some((symbol.address(), symbol.kind(), symbol.name().ok()?)))
        .filter(|(_, _, name)| !name.contains('.'))
        .collect();
    // Two names of one address would contradict each other.
    names.sort_unstable_by_key(|(address, _, name)| (*address, *name));
    names.dedup_by_key(|(address, _, _)| *address);
    for (_, kind, name) in names {
        match kind {
            SymbolKind::Data => entries.add("symbol", name),
            SymbolKind::Text => {
                FUNCTIONS.iter().for_each(|(_, key)| entries.add(key, name));
            }
            _ => {}
        }
    }
    entries.text
}

/// The calls of functions that initialise or take locks: key and place, by their return addresses.
fn call_sites(program: &Path) -> Vec<(&'static str, String)> {
    let mut objdump = Command::new("objdump");
    objdump.args(["-d", "--no-show-raw-insn"]).arg(program);
    let output = room::output(&mut objdump).expect("objdump runs (apt-get install binutils)");
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut sites, mut function, mut called) = (Vec::new(), ("", 0), None);
    let hex = |text: &str| u64::from_str_radix(text.trim(), 16).ok();
    for line in text.lines() {
        if let Some((address, name)) = line.strip_suffix(">:").and_then(|it| it.split_once(" <")) {
            function = (name, hex(address).expect("an address"));
            continue;
        }
        let Some((address, instruction)) = line.split_once(":\t") else { continue };
        let Some(address) = hex(address) else { continue };
        if let Some(key) = called.take() {
            sites.push((key, format!("{}+{:#x}", function.0, address - function.1)));
        }
        if instruction.starts_with("call") && instruction.contains("<pthread_") {
            let known = FUNCTIONS.iter().find(|(end, _)| instruction.ends_with(end));
            called = known.map(|(_, key)| *key).filter(|_| !function.0.contains('.'));
        }
    }
    sites
}
