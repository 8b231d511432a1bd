//! Compiles a program, runs it under QEMU with the plug-in, and reads the stream.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use unconvoy_trace_stream::{Reader, Record};

/// Whether the tests cannot run here; prints the reason.
pub fn skipped() -> bool {
    if !cfg!(target_arch = "x86_64") {
        println!("skipped: the plug-in is for x86-64 hosts");
        return true;
    }
    for (program, what) in [("qemu-x86_64", "install qemu-user 7.2"), ("cc", "install gcc")] {
        if Command::new(program).arg("--version").output().is_err() {
            println!("missing: {program} ({what})");
            return true;
        }
    }
    false
}

/// A section of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled {
    pub lock: u32,
    pub thread: u32,
    pub order: u64,
    pub flags: u32,
    /// The words, by address: masks of the bytes read and written, and the code addresses that
    /// first read and wrote the word.
    pub words: BTreeMap<u64, (u8, u8, u64, u64)>,
}

/// A lock of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    pub number: u32,
    pub address: u64,
    pub incarnation: u32,
    pub acquisitions: u64,
    pub sampled: u64,
    pub contended: u64,
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Run {
    /// Output of the program or of QEMU.
    pub output: Option<Output>,
    pub context: String,
    pub end: String,
    pub locks: Vec<Lock>,
    pub sections: Vec<Sampled>,
    /// Address, size, first return address.
    pub allocations: Vec<(u64, u64, u64)>,
    pub modules: Vec<(u64, u64, PathBuf)>,
    /// Why reading stopped before the end record.
    pub error: Option<String>,
}

impl Run {
    /// The address that the program printed as `name=0x...`.
    pub fn address(&self, name: &str) -> u64 {
        let value = self.printed(name);
        u64::from_str_radix(value.trim_start_matches("0x"), 16).expect("an address")
    }

    /// The value that the program printed as `name=value`.
    pub fn printed(&self, name: &str) -> String {
        let output = self.stdout();
        let mut lines = output.lines().filter_map(|line| line.split_once('='));
        lines
            .find(|(other, _)| *other == name)
            .unwrap_or_else(|| panic!("no {name} in {output:?}"))
            .1
            .to_string()
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.as_ref().expect("it ran").stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.as_ref().expect("it ran").stderr).into_owned()
    }

    /// The locks at the address.
    pub fn locks_at(&self, address: u64) -> Vec<Lock> {
        self.locks.iter().filter(|lock| lock.address == address).copied().collect()
    }

    /// The only lock at the address that the program printed.
    pub fn lock(&self, name: &str) -> Lock {
        let at = self.locks_at(self.address(name));
        assert_eq!(at.len(), 1, "{name}: {at:?}");
        at[0]
    }

    pub fn sections_of(&self, lock: Lock) -> Vec<&Sampled> {
        self.sections.iter().filter(|section| section.lock == lock.number).collect()
    }

    /// The addresses of a section's words.
    pub fn words(section: &Sampled) -> Vec<u64> {
        section.words.keys().copied().collect()
    }
}

/// Compiles the C text with `flags` and runs it under the plug-in with `options`.
pub fn run(text: &str, flags: &[&str], options: &str) -> Run {
    run_with(text, flags, options, &[])
}

/// The same, with arguments for the program.
pub fn run_with(text: &str, flags: &[&str], options: &str, arguments: &[&str]) -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile(folder.path(), text, flags);
    run_compiled(folder.path(), &program, options, arguments)
}

/// Compiles the C text in the folder.
pub fn compile(folder: &Path, text: &str, flags: &[&str]) -> PathBuf {
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&source, format!("{PRELUDE}{text}")).expect("a source");
    let compiled = Command::new("cc")
        .args(["-O1", "-g", "-pthread", "-o"])
        .arg(&program)
        .arg(&source)
        .args(flags)
        .output();
    let compiled = compiled.expect("a compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

/// Runs a program under the plug-in with the options.
pub fn run_compiled(folder: &Path, program: &Path, options: &str, arguments: &[&str]) -> Run {
    let out = folder.join("out");
    let separator = if options.is_empty() { "" } else { "," };
    let plugin = format!("{},out={}{separator}{options}", plugin().display(), out.display());
    // A program that hangs shows a defect of the plug-in: kill it and let the test fail.
    let output = Command::new("timeout")
        .args(["60", "qemu-x86_64", "-plugin", &plugin])
        .arg(program)
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("qemu-x86_64");
    let mut run = read(&out);
    run.output = Some(output);
    run
}

const PRELUDE: &str = "#define _GNU_SOURCE\n#include <pthread.h>\n#include <stdio.h>\n#include \
    <stdlib.h>\n#include <string.h>\n\
    #include <unistd.h>\n#define PRINT(name) printf(#name \"=%p\\n\", (void *)&(name))\n#line 1\n";

/// The plug-in that Cargo built for this test, in a folder above the test's executable.
pub fn plugin() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let found =
        test.ancestors().skip(1).take(2).map(|folder| folder.join("libunconvoy_plugin_user.so"));
    found.into_iter().find(|path| path.exists()).expect("Cargo builds the library before its tests")
}

pub fn read(path: &Path) -> Run {
    let mut run = Run::default();
    let Ok(file) = std::fs::File::open(path) else {
        run.error = Some("no stream".to_string());
        return run;
    };
    let mut reader = match Reader::new(std::io::BufReader::new(file)) {
        Ok(reader) => reader,
        Err(error) => {
            run.error = Some(error.to_string());
            return run;
        }
    };
    let mut places = BTreeMap::from([(0, 0)]);
    loop {
        match reader.next_record() {
            Ok(None) => return run,
            Err(error) => {
                run.error = Some(error.to_string());
                return run;
            }
            Ok(Some(record)) => match record {
                Record::Context(json) => run.context = json.to_string(),
                Record::End(json) => run.end = json.to_string(),
                Record::Module(module) => {
                    let path = String::from_utf8_lossy(module.path).into_owned();
                    run.modules.push((module.region.address, module.region.end(), path.into()));
                }
                Record::Lock(lock) => {
                    assert_eq!(
                        run.locks.len(),
                        lock.number as usize,
                        "locks come in order of their numbers"
                    );
                    run.locks.push(Lock {
                        number: lock.number,
                        address: lock.region.address,
                        incarnation: lock.incarnation,
                        acquisitions: 0,
                        sampled: 0,
                        contended: 0,
                    });
                }
                Record::Object(_) | Record::Held(_) => panic!("a kernel's record"),
                Record::Place(place) => {
                    places.insert(place.number, place.pc);
                }
                Record::Allocation(allocation) => {
                    let site = allocation.frames().next().unwrap_or(0);
                    run.allocations.push((allocation.region.address, allocation.region.size, site));
                }
                Record::Counts(counts) => {
                    let lock = &mut run.locks[counts.lock as usize];
                    (lock.acquisitions, lock.sampled, lock.contended) =
                        (counts.acquisitions, counts.sampled, counts.contended);
                }
                Record::Section(section, entries) => {
                    let words = entries.iter().map(|entry| {
                        let places = (places[&entry.read_place], places[&entry.written_place]);
                        (entry.address, (entry.read, entry.written, places.0, places.1))
                    });
                    let unconvoy_trace_stream::Section { lock, thread, order, flags } = section;
                    assert!((lock as usize) < run.locks.len(), "a lock precedes its sections");
                    assert!(
                        run.sections.last().is_none_or(|last| last.order < order),
                        "sections come in order"
                    );
                    run.sections.push(Sampled {
                        lock,
                        thread,
                        order,
                        flags,
                        words: words.collect(),
                    });
                }
            },
        }
    }
}
