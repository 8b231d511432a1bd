//! The parsers of files and streams that somebody else may have made, for a fuzzer
//! (`fuzz/src/main.rs`). A parser may reject its input; it must not panic, hang or take memory
//! without bound.
//!
//! Compiled only for tests and with `--cfg fuzzing`. The tests run every input of `fuzz/corpus`,
//! where former crashes are, too.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use regex::Regex;
use unconvoy_measure::child::Output;
use unconvoy_profile::{Profile, Recorded};
use unconvoy_syncchar::{Analysis, Options};

use unconvoy_trace_stream::Reader;

use crate::compare::configuration::Configuration;
use crate::compare::extract::number;
use crate::images::{Images, Mapping};
use crate::inspect::core::Core;
use crate::members::LockType;
use crate::predict::kernel::btf::Btf;
use crate::predict::kernel::symbols::Symbols as GuestSymbols;
use crate::predict::trace::Trace;
use crate::process_file::MappedFile;
use crate::profile::options::Sort;
use crate::profile::report::Report;
use crate::profile::{kernel, outside};
use crate::stats;
use crate::strategy::Strategy;
use crate::top::maps::Mapped;

/// Parses one input.
pub type Target = fn(&[u8]);

/// The parsers by name.
pub const TARGETS: [(&str, Target); 12] = [
    ("btf", btf),
    ("configuration", configuration),
    ("core", core_dump),
    ("elf", elf),
    ("event", event),
    ("kernel-symbols", kernel_symbols),
    ("maps", maps),
    ("metric", metric),
    ("profile", recorded),
    ("statistics", statistics),
    ("strategy", strategy),
    ("stream", stream),
];

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

/// A file in memory with this content, and its name.
fn file(data: &[u8]) -> (OwnedFd, PathBuf) {
    // SAFETY: the name ends in a zero, and nothing else owns the new descriptor.
    let memory = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"fuzz".as_ptr(), 0)) };
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd()).into();
    File::from(memory.try_clone().expect("a descriptor")).write_all(data).expect("memory");
    (memory, path)
}

fn configuration(data: &[u8]) {
    let text = text(data);
    // Such a name is that of a file.
    if !text.ends_with(".toml") {
        let _ = Configuration::parse(&text);
    }
}

fn btf(data: &[u8]) {
    let _ = Btf::parse(data);
}

fn event(data: &[u8]) {
    if let Some(event) = kernel::event::Event::parse(data) {
        let _ = (event.stack(), event.task());
    }
    let _ = outside::event::Event::parse(data);
}

fn core_dump(data: &[u8]) {
    let (_memory, path) = file(data);
    let _ = Core::open(&path, None);
}

/// A program that the profiled process mapped.
fn elf(data: &[u8]) {
    let (_memory, path) = file(data);
    let mapping = Mapping { base: 0x1000, end: 0x10_0000, offset: 0, path };
    let images = Images::new(&[mapping]);
    for address in [0x1000, 0x1010, 0x1100, 0x2000, 0x4010] {
        let _ = (images.code(address), images.variable(address), images.call_site(address));
        let _ = images.static_member(address, LockType::Mutex);
        let _ = images.locked_member(&[address, address + 8], LockType::Mutex);
        let _ = images.function_until(address, 4096);
    }
}

fn kernel_symbols(data: &[u8]) {
    let _ = GuestSymbols::parse(data).missing();
    let _ = kernel::symbols::Symbols::parse(&text(data)).is_empty();
}

fn maps(data: &[u8]) {
    for line in MappedFile::of_list(data) {
        let _ = Mapped::of(line).and_then(|mapped| mapped.segment());
    }
}

/// The first line is the expression, the rest is what the program printed.
fn metric(data: &[u8]) {
    let text = text(data);
    let (expression, printed) = text.split_once('\n').unwrap_or((&text, ""));
    let Ok(regex) = Regex::new(expression) else { return };
    let output = Output { stdout: printed.into(), ..Output::default() };
    let _ = number(&regex, &output);
}

/// A profile has a fixed size, most of which is empty: the input is a list of changes to an empty
/// one, each of three bytes of position, one of length, and content.
fn recorded(mut data: &[u8]) {
    let mut bytes = vec![0; size_of::<Profile>()];
    bytes[..8].copy_from_slice(b"unconvoy");
    bytes[8..12].copy_from_slice(&unconvoy_profile::layout::VERSION.to_le_bytes());
    while let Some((&[low, middle, high, length], rest)) = data.split_first_chunk() {
        let at = 12 + usize::from(low) + (usize::from(middle) << 8) + (usize::from(high) << 16);
        let (content, rest) = rest.split_at(rest.len().min(length.into()));
        if let Some(place) = bytes.get_mut(at..at + content.len()) {
            place.copy_from_slice(content);
        }
        data = rest;
    }
    if let Ok(recorded) = Recorded::parse(&bytes) {
        let _ = Report::new(&recorded, Sort::Waited);
    }
}

fn statistics(data: &[u8]) {
    let (_memory, path) = file(data);
    let _ = stats::table(&path, 10);
}

fn strategy(data: &[u8]) {
    let _ = Strategy::parse(Path::new("fuzz.toml"), &text(data));
}

fn stream(data: &[u8]) {
    let analysis = Analysis::new(Options::default()).expect("the default options are valid");
    if let Ok(reader) = Reader::new(data) {
        let _ = Trace::read(reader, analysis, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_of_the_corpus_is_parsed_or_rejected() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        for (name, target) in TARGETS {
            let inputs = std::fs::read_dir(corpus.join(name)).expect(name);
            let mut count = 0;
            for input in inputs {
                target(&std::fs::read(input.expect("an input").path()).expect("readable"));
                count += 1;
            }
            assert!(count > 0, "{name} has no input");
        }
    }
}
