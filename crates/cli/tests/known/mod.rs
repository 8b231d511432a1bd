//! A profile with known content.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use unconvoy_profile::layout::{COUNT_UNIT, MAGIC, VERSION};
use unconvoy_profile::{Kind, Profile, layout};

use crate::stage::Stage;

/// A program with a variable that stands for a lock, and two functions.
const SOURCE: &str = "
int queue_lock[10];
void wait_here(void) { queue_lock[0]++; }
void hold_here(void) { queue_lock[1]++; }
int main(void) { return 0; }
";

/// A profile of a program that is mapped at [`BASE`].
pub struct Known {
    pub stage: Stage,
    pub profile: Box<Profile>,
    symbols: Vec<(String, u64)>,
}

const BASE: u64 = 0x5500_0000_0000;

impl Known {
    pub fn new() -> Self {
        let stage = Stage::new();
        let source = stage.write("server.c", SOURCE);
        let program = stage.compile("server", &source, &["-pie", "-fPIE"]).expect("a C compiler");
        let profile = layout::zeroed();
        profile.header.magic.store(MAGIC, Relaxed);
        profile.header.version.store(VERSION, Relaxed);
        profile.header.ended.store(1, Relaxed);
        profile.header.unwinds.store(1, Relaxed);
        profile.header.period_ns.store(1_000_000, Relaxed);
        profile.header.last_ns.store(2_000_000_000, Relaxed);
        let text = |to: &[std::sync::atomic::AtomicU8], from: &str| {
            to.iter().zip(from.bytes()).for_each(|(to, byte)| to.store(byte, Relaxed));
        };
        text(&profile.header.lock, "libc");
        text(&profile.header.program, program.to_str().unwrap());
        let symbols = symbols(&program);
        let known = Known { stage, profile, symbols };
        known.list(&[(BASE, "00:00 0")]);
        known
    }

    /// Lists the program's file as mapped at these addresses, with its device and inode.
    fn list(&self, mapped: &[(u64, &str)]) {
        let path = self.stage.path("server");
        let path = path.display();
        let line = |(start, file): &(u64, &str)| {
            let end = start + 0x10_0000;
            format!("{start:x}-{end:x} r-xp 00000000 {file} {path}\n")
        };
        let lines: String = mapped.iter().map(line).collect();
        let to = self.profile.modules.iter();
        to.zip(lines.bytes()).for_each(|(to, byte)| to.store(byte, Relaxed));
        self.profile.header.modules_used.store(lines.len() as u32, Relaxed);
    }

    /// Lists the program's file with an inode that is `added` beyond its own.
    pub fn with_inode(&self, added: u64) {
        let found = std::fs::metadata(self.stage.path("server")).unwrap();
        let (major, minor) = (libc::major(found.dev()), libc::minor(found.dev()));
        self.list(&[(BASE, &format!("{major:x}:{minor:x} {}", found.ino() + added))]);
    }

    /// Lists the program's file at this number of addresses.
    pub fn with_mappings(&self, number: u64) {
        let mapped: Vec<_> = (0..number).map(|at| (BASE + at * 0x100_0000, "00:00 0")).collect();
        self.list(&mapped);
    }

    pub fn address(&self, name: &str) -> u64 {
        BASE + self.symbols.iter().find(|(other, _)| other == name).expect("a symbol").1
    }

    /// Records waits for `queue_lock`, for two locks on the heap with the same origin, and for a
    /// signal.
    pub fn with_waits(self) -> Self {
        let waiter = self.profile.stack(&[self.address("wait_here") + 2], 0);
        let holder = self.profile.stack(&[self.address("hold_here") + 2], 0);
        let origin = self.profile.stack(&[self.address("main") + 2], 0);
        let queue = self.address("queue_lock") as usize;
        for (address, ns) in [(queue, 30_000_000), (0x1000, 6_000_000), (0x2000, 4_000_000)] {
            if address < 0x3000 {
                self.profile.record_origin(address, origin);
            }
            let (index, lock) = self.profile.lock(Kind::Mutex, address).unwrap();
            self.profile.record_wait(lock, ns, 1_000, false);
            self.profile.record_hold(lock, 1_000_000);
            self.profile.add_sample(index, (waiter, holder), ns, COUNT_UNIT);
        }
        let (index, cond) = self.profile.lock(Kind::Cond, queue + 4).unwrap();
        self.profile.record_wait(cond, 900_000_000, 1_000, false);
        self.profile.add_sample(index, (waiter, 0), 900_000_000, COUNT_UNIT);
        self
    }

    pub fn report(&self, arguments: &[&str]) -> String {
        let path = self.stage.path("locks.profile");
        std::fs::write(&path, self.profile.to_bytes()).unwrap();
        let mut command = self.stage.unconvoy();
        command.args(["profile", "--read", "locks.profile"]).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn symbols(program: &PathBuf) -> Vec<(String, u64)> {
    use object::{Object, ObjectSymbol};
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    file.symbols()
        .map(|symbol| (symbol.name().unwrap_or_default().to_string(), symbol.address()))
        .collect()
}
