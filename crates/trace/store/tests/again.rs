//! Analysing a stored trace gives exactly the numbers of analysing its stream.

use std::collections::HashMap;
use std::io::Seek;
use unconvoy_syncchar::{Analysis, LockAnalysis, Options};
use unconvoy_trace_store as store;
use unconvoy_trace_stream::{
    self as stream, Access, Entries, Record, Region, Section, append, flag,
};

/// Feeds the sections of a trace to an analysis and retires locks that were initialised again.
struct Feed {
    analysis: Analysis,
    /// The current lock at each address.
    lives: HashMap<u64, u32>,
}

impl Feed {
    fn new(processors: &[u32]) -> Self {
        let options = Options { processors: processors.to_vec(), ..Options::default() };
        Feed { analysis: Analysis::new(options).unwrap(), lives: HashMap::new() }
    }

    fn record(&mut self, record: &Record) {
        match record {
            Record::Lock(lock) => {
                if let Some(before) = self.lives.insert(lock.region.address, lock.number) {
                    self.analysis.retire(before);
                }
            }
            Record::Section(section, entries) => self.analysis.section(*section, entries.iter()),
            _ => {}
        }
    }
}

/// Each thread has its own word and all share one; the lock is initialised again halfway.
fn collected() -> Vec<u8> {
    let mut stream = stream::MAGIC.to_vec();
    for order in 0..4000u64 {
        if order % 2000 == 0 {
            let life = (order / 2000) as u32;
            let lock = stream::Lock {
                number: life,
                region: Region::new(0x100, 40),
                incarnation: life,
                pc: 1,
                name: b"",
            };
            append(&mut stream, &Record::Lock(lock));
        }
        let thread = (order % 7) as u32;
        let entry = |address, written| Access {
            address,
            read: 1,
            written,
            read_place: 1,
            written_place: 1,
        };
        let entries =
            [entry(0x1000, u8::from(order % 3 == 0)), entry(0x2000 + u64::from(thread) * 8, 1)];
        let flags = if order % 50 == 0 { flag::IO } else { 0 };
        let section = Section { lock: (order / 2000) as u32, thread, order, flags };
        append(&mut stream, &Record::Section(section, Entries::from(&entries[..])));
    }
    append(&mut stream, &Record::End("{}"));
    stream
}

fn stored_and_read(processors: &[u32], bytes: &[u8]) -> Vec<LockAnalysis> {
    let mut reader = stream::Reader::new(bytes).unwrap();
    let mut writer = store::Writer::new(tempfile::tempfile().unwrap()).unwrap();
    while let Some(record) = reader.next_record().unwrap() {
        writer.write(&record).unwrap();
    }
    let mut file = writer.finish().unwrap();
    file.rewind().unwrap();
    let mut reader = store::Reader::new(file).unwrap();
    let mut feed = Feed::new(processors);
    while let Some(record) = reader.next_record().unwrap() {
        feed.record(&record);
    }
    feed.analysis.finish()
}

#[test]
fn stored_trace_analysis_equals_live_analysis() {
    let bytes = collected();
    let mut reader = stream::Reader::new(&bytes[..]).unwrap();
    let mut feed = Feed::new(&[2, 8]);
    while let Some(record) = reader.next_record().unwrap() {
        feed.record(&record);
    }
    let live = feed.analysis.finish();
    assert_eq!(live.len(), 2);
    assert!(live.iter().all(|lock| lock.sections == 2000 && lock.threads == 7));
    assert_eq!(stored_and_read(&[2, 8], &bytes), live);
    // Other processor counts, from the same trace.
    let other = stored_and_read(&[4], &bytes);
    assert_eq!(other[0].estimates[0].processors, 4);
    assert_eq!(other[0].sections, live[0].sections);
}

/// The output of `unconvoy-parquet` for `input`, or its standard error if it fails.
fn converted(direction: &str, input: &[u8]) -> Result<Vec<u8>, String> {
    let directory = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| directory.path().join(name));
    std::fs::write(&from, input).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_unconvoy-parquet"))
        .arg(direction)
        .stdin(std::fs::File::open(&from).unwrap())
        .stdout(std::fs::File::create(&to).unwrap())
        .output()
        .unwrap();
    match output.status.success() {
        true => Ok(std::fs::read(&to).unwrap()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

#[test]
fn pack_then_unpack_returns_same_stream() {
    let stream = collected();
    let packed = converted("pack", &stream).unwrap();
    assert_eq!(packed[..4], *b"PAR1");
    assert!(converted("unpack", &packed).unwrap() == stream);

    let half = converted("unpack", &packed[..packed.len() / 2]).unwrap_err();
    assert!(
        half.starts_with(&format!("truncated: it ends at byte {}", packed.len() / 2)),
        "{half}"
    );
    assert!(converted("pack", b"something else").unwrap_err().starts_with("not a trace of"));
}
