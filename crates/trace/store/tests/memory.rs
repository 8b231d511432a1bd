//! The size that a page claims to unpack to costs no memory.

use std::fs::File;
use std::io::Write as _;
use std::process::{Command, Output};

use parquet::file::reader::{FileReader, SerializedFileReader};
use unconvoy_trace_store::Writer;
use unconvoy_trace_stream::{self as stream, Object, Record, Region, append};

/// KiB of address space for the program: less than the claim, far more than the trace needs.
const LIMIT: usize = 100 << 10;

/// Length of the trace's text. Sizes from here to the claim take four bytes in a page.
const TEXT: usize = 2 << 20;

/// A claim of 128 MiB.
const CLAIM: usize = (128 << 20) - 1;

/// A stream, and its trace file.
fn trace() -> (Vec<u8>, Vec<u8>) {
    let name = vec![b'n'; TEXT];
    let record = Record::Object(Object { region: Region::new(8, 8), name: &name });
    let mut stream = stream::MAGIC.to_vec();
    append(&mut stream, &record);
    let mut writer = Writer::new(Vec::new()).unwrap();
    writer.write(&record).unwrap();
    (stream, writer.finish().unwrap())
}

/// A number of four bytes, least significant bits first.
fn varint(number: usize) -> [u8; 4] {
    assert!((1 << 21..1 << 28).contains(&number));
    [0, 7, 14, 21].map(|shift| (number >> shift) as u8 & 0x7f | if shift < 21 { 0x80 } else { 0 })
}

fn temporary(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// Replaces the size of the text's page, which is written as `form`, and renews the checksum.
fn with_claim(stored: &[u8], form: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let find = |bytes: &[u8]| stored.windows(bytes.len()).position(|window| window == bytes);
    let found = (TEXT..TEXT + 64).find_map(|size| find(&form(size)));
    let at = found.expect("a page with the text");
    let claim = form(CLAIM);
    let mut changed = stored.to_vec();
    changed[at..at + claim.len()].copy_from_slice(&claim);

    let file = SerializedFileReader::new(temporary(stored).reopen().unwrap()).unwrap();
    let pairs = file.metadata().file_metadata().key_value_metadata().unwrap();
    let checksum = pairs[0].value.as_deref().unwrap();
    let parts: Vec<&str> = checksum.split(' ').collect();
    let (start, end) = (parts[0].parse::<usize>().unwrap(), parts[1].parse().unwrap());
    let renewed = format!("{:08x}", crc32fast::hash(&changed[start..end]));
    let at = find(checksum.as_bytes()).unwrap() + checksum.len() - renewed.len();
    changed[at..at + renewed.len()].copy_from_slice(renewed.as_bytes());
    changed
}

/// Runs `unconvoy-parquet unpack` with limited memory.
fn unpack(stored: &[u8]) -> Output {
    let limited = format!("ulimit -v {LIMIT} && exec \"$0\" unpack");
    Command::new("sh")
        .args(["-c", &limited, env!("CARGO_BIN_EXE_unconvoy-parquet")])
        .stdin(File::open(temporary(stored).path()).unwrap())
        .output()
        .unwrap()
}

#[test]
fn size_in_a_page_header_allocates_no_memory() {
    let (stream, stored) = trace();
    // The first two fields of the header: a type, 0 or 2, and the size; then another field.
    let header = |size: usize| [&[0x15][..], &varint(size << 1), &[0x15]].concat();
    for bytes in [&stored, &with_claim(&stored, header)] {
        let output = unpack(bytes);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(output.stdout == stream);
    }
}

#[test]
fn size_in_a_compressed_page_is_rejected() {
    let (_, stored) = trace();
    let output = unpack(&with_claim(&stored, |size| varint(size).to_vec()));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("a page claims to unpack to an impossible size"), "{complaint}");
}
