//! Measures writing and reading of ten million entries: time, file size and peak memory.
//!
//! ```text
//! cargo run --release -p unconvoy-trace-store --example speed
//! ```

use std::error::Error;
use std::io::{BufWriter, Seek};
use std::time::Instant;
use unconvoy_trace_store::{Reader, Writer};
use unconvoy_trace_stream::{Access, Entries, Record, Section};

const SECTIONS: u64 = 200_000;
const PER_SECTION: u64 = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let mut writer = Writer::new(BufWriter::new(tempfile::tempfile()?))?;
    let mut entries = Vec::new();
    for order in 0..SECTIONS {
        let base = 0x5555_0000_0000 + order.wrapping_mul(0x9e37_79b9) % (1 << 24) * 64;
        entries.clear();
        entries.extend((0..PER_SECTION).map(|word| Access {
            address: base + word * 8,
            read: 0xff,
            written: if word % 7 == 0 { 0x0f } else { 0 },
            read_place: word as u32 + 1,
            written_place: if word % 7 == 0 { word as u32 + 1 } else { 0 },
        }));
        let section = Section {
            lock: order as u32 % 20,
            thread: order as u32 % 32,
            order: order * 10,
            flags: 0,
        };
        writer.write(&Record::Section(section, Entries::from(&entries[..])))?;
    }
    let mut file = writer.finish()?.into_inner()?;
    let (bytes, written) = (file.stream_position()?, start.elapsed());
    file.rewind()?;
    let start = Instant::now();
    let mut reader = Reader::new(file)?;
    let mut read = 0;
    while let Some(record) = reader.next_record()? {
        if let Record::Section(_, entries) = record {
            read += entries.len() as u64;
        }
    }
    assert_eq!(read, SECTIONS * PER_SECTION);
    println!(
        "{read} entries: written in {:.1} s, read in {:.1} s, {:.1} bytes each, peak {} MiB",
        written.as_secs_f64(),
        start.elapsed().as_secs_f64(),
        bytes as f64 / read as f64,
        peak_mib()
    );
    Ok(())
}

/// Peak resident memory of the process in MiB; 0 if /proc does not say.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
}
