//! The resolved form of a strategy file: which algorithm serves which locks of a process.
//!
//! The command reads the file, looks its names up in the program's ELF files, and passes the result
//! to the interposer in [`environment::STRATEGY`](super::environment::STRATEGY), as one line of
//! text. The interposer reads the line inside a program's first lock operation, so reading neither
//! allocates nor locks.
//!
//! ```text
//! 1 c:libc c:mcs+park:50 d:0 m:5bd1e9955bd1e995 s:4040-4068=1 i:1139-1200=0
//! ```
//!
//! The first word is the version. `c:` adds a choice; `d:` names the choice for the locks that no
//! rule names. `m:` begins the rules of a module, named by its [identity](module_identity). A rule
//! has a letter ([`Names`]), a range of the module's own addresses, and a choice by its number.

use core::fmt::Write as _;
use core::ops::RangeInclusive;

/// The version of the resolved form.
const VERSION: &str = "1";

/// Greatest number of choices.
pub const MOST_CHOICES: usize = 200;

/// Greatest length of the text, in bytes. Linux limits one variable to 128 KiB.
pub const LONGEST: usize = 120 << 10;

/// How a lock is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice<'a> {
    /// By libc.
    Libc,
    /// By a contention manager and a load manager, perhaps with a [spinning time](split_load).
    Pair(&'a str, &'a str),
}

/// The spinning times that a lock may have, in microseconds.
pub const SPIN_US: RangeInclusive<u32> = 1..=10_000_000;

/// Separates a load manager and the time for which its waiters spin before they park, in
/// microseconds: `park:50`. `None` if this is no time, or the load manager takes none.
pub fn split_load(load: &str) -> Option<(&str, Option<u32>)> {
    let Some((name, us)) = load.split_once(':') else { return Some((load, None)) };
    let us = us.parse().ok().filter(|us| name == "park" && SPIN_US.contains(us))?;
    Some((name, Some(us)))
}

/// What the addresses of a rule are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Names {
    /// Addresses of static mutexes.
    Mutex,
    /// Code that initialises mutexes.
    InitialisedMutex,
    /// Code that takes a mutex for the first time.
    FirstTakenMutex,
    /// Addresses of static reader-writer locks.
    RwLock,
    /// Code that initialises reader-writer locks.
    InitialisedRwLock,
    /// Code that takes a reader-writer lock for the first time.
    FirstTakenRwLock,
}

impl Names {
    /// All, in order.
    pub const ALL: [Names; 6] = [
        Names::Mutex,
        Names::InitialisedMutex,
        Names::FirstTakenMutex,
        Names::RwLock,
        Names::InitialisedRwLock,
        Names::FirstTakenRwLock,
    ];

    const LETTERS: &'static [u8; 6] = b"sitSIT";
}

/// Names locks by a range of addresses in a module, and chooses an algorithm for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// What the addresses are.
    pub names: Names,
    /// The module's [identity](module_identity).
    pub module: u64,
    /// The first address, as in the module's file.
    pub start: u64,
    /// The first address after the range.
    pub end: u64,
    /// Number of the choice, from 0.
    pub choice: u8,
}

/// One word of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word<'a> {
    /// The next choice.
    Choice(Choice<'a>),
    /// Number of the choice for locks without a rule.
    Default(u8),
    /// A rule.
    Rule(Rule),
}

/// Writes the text. Rules that share a module should be adjacent.
pub fn write(choices: &[Choice<'_>], default: Option<u8>, rules: &[Rule]) -> String {
    let mut text = String::from(VERSION);
    for choice in choices {
        let _ = match choice {
            Choice::Libc => write!(text, " c:libc"),
            Choice::Pair(lock, load) => write!(text, " c:{lock}+{load}"),
        };
    }
    if let Some(default) = default {
        let _ = write!(text, " d:{default}");
    }
    let mut module = None;
    for rule in rules {
        if module.replace(rule.module) != Some(rule.module) {
            let _ = write!(text, " m:{:x}", rule.module);
        }
        let letter = char::from(Names::LETTERS[rule.names as usize]);
        let _ = write!(text, " {letter}:{:x}-{:x}={}", rule.start, rule.end, rule.choice);
    }
    text
}

/// The words of a text; `None` if it is of another version. A word that cannot be read is `None`.
pub fn words(text: &str) -> Option<impl Iterator<Item = Option<Word<'_>>>> {
    let mut words = text.split(' ');
    let mut module = 0;
    (words.next() == Some(VERSION)).then(|| words.filter_map(move |word| read(word, &mut module)))
}

/// Reads a word: `None` if it only sets the module.
fn read<'a>(word: &'a str, module: &mut u64) -> Option<Option<Word<'a>>> {
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let (letter, value) = match word.split_once(':') {
        Some(("m", value)) => {
            *module = hex(value)?;
            return None;
        }
        Some(parts) => parts,
        None => return Some(None),
    };
    let rule = |names| {
        let (range, choice) = value.split_once('=')?;
        let (start, end) = range.split_once('-')?;
        let (start, end, choice) = (hex(start)?, hex(end)?, choice.parse().ok()?);
        Some(Word::Rule(Rule { names, module: *module, start, end, choice }))
    };
    Some(match letter {
        "c" if value == "libc" => Some(Word::Choice(Choice::Libc)),
        "c" => value.split_once('+').map(|(lock, load)| Word::Choice(Choice::Pair(lock, load))),
        "d" => value.parse().ok().map(Word::Default),
        _ => {
            let position = Names::LETTERS.iter().position(|known| letter.as_bytes() == [*known]);
            position.and_then(|position| rule(Names::ALL[position]))
        }
    })
}

/// A part of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Its place in the file.
    pub offset: u64,
    /// Its address, as in the file.
    pub address: u64,
    /// Its length in the file.
    pub size: u64,
}

/// A number that identifies a module by its contents, equal for the file and for the mapped image:
/// a hash of the ELF header, the program headers and the notes, which contain the build id. `start`
/// has the file's first bytes, and `note` returns the contents of a segment of notes. `None` if
/// this is no 64-bit little-endian ELF file, or its headers are not within `start`.
pub fn module_identity<'a>(
    start: &'a [u8],
    mut note: impl FnMut(Segment) -> Option<&'a [u8]>,
) -> Option<u64> {
    const HEADER: usize = 64;
    const PROGRAM_HEADER: usize = 56;
    const PT_NOTE: u64 = 4;
    let header = start.get(..HEADER)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let at = u64_at(header, 32) as usize;
    let count = u16::from_le_bytes([header[56], header[57]]).into();
    let table = start.get(at..at.checked_add(PROGRAM_HEADER.checked_mul(count)?)?)?;
    let mut hash = add(add(0, header), table);
    for entry in table.chunks_exact(PROGRAM_HEADER) {
        if u64_at(entry, 0) & 0xffff_ffff == PT_NOTE {
            let segment = Segment {
                offset: u64_at(entry, 8),
                address: u64_at(entry, 16),
                size: u64_at(entry, 32),
            };
            hash = add(hash, note(segment)?);
        }
    }
    Some(hash)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Adds bytes to a hash.
fn add(hash: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(hash ^ bytes.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let mixed = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ mixed >> 29
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn written_text_reads_back() {
        let choices = [Choice::Libc, Choice::Pair("mcs", "control")];
        let rule = |names, module, start| Rule { names, module, start, end: start + 40, choice: 1 };
        let rules = [
            rule(Names::Mutex, 7, 0x4040),
            rule(Names::FirstTakenRwLock, 7, 0x1139),
            rule(Names::InitialisedMutex, u64::MAX, 0x1139),
        ];
        let text = write(&choices, Some(0), &rules);
        assert_eq!(
            text,
            "1 c:libc c:mcs+control d:0 m:7 s:4040-4068=1 T:1139-1161=1 m:ffffffffffffffff \
             i:1139-1161=1"
        );
        let read: Vec<_> = words(&text).unwrap().map(Option::unwrap).collect();
        let expected: Vec<_> = choices.iter().map(|choice| Word::Choice(*choice)).collect();
        assert_eq!(read[..2], expected);
        assert_eq!(read[2], Word::Default(0));
        assert_eq!(read[3..], rules.map(Word::Rule));
    }

    #[test]
    fn load_manager_with_a_spinning_time_is_split() {
        assert_eq!(split_load("control"), Some(("control", None)));
        assert_eq!(split_load("park:50"), Some(("park", Some(50))));
        for wrong in ["control:50", "park:", "park:0", "park:-1", "park:10000001", "park:1.5"] {
            assert_eq!(split_load(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn other_version_and_broken_words_are_recognised() {
        assert!(words("2 c:libc").is_none());
        assert!(words("").is_none());
        for broken in ["1 x:1", "1 c:mcs", "1 s:1-2", "1 s:1=0", "1 d:x", "1 c"] {
            assert_eq!(words(broken).unwrap().collect::<Vec<_>>(), [None], "{broken}");
        }
    }

    /// The start of an ELF file with one program header, which is of notes.
    fn elf() -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        file[56] = 1;
        file[64] = 4;
        file[64 + 16] = 0x40;
        file[64 + 32] = 7;
        file
    }

    #[test]
    fn identity_needs_an_elf_header_and_covers_the_notes() {
        let file = elf();
        let note = |segment: Segment| {
            assert_eq!(segment, Segment { offset: 0, address: 0x40, size: 7 });
            Some(&b"a build"[..])
        };
        let identity = module_identity(&file, note).unwrap();
        let longer = [&file[..], &[1; 40]].concat();
        assert_eq!(module_identity(&longer, note), Some(identity));
        assert_ne!(module_identity(&file, |_| Some(b"another")), Some(identity));
        assert_eq!(module_identity(&file, |_| None), None);
        assert_eq!(module_identity(&file[..file.len() - 1], note), None);
        assert_eq!(module_identity(&file[..63], note), None);
        assert_eq!(module_identity(&[b'#'; 200], note), None);
    }
}
