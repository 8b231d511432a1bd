//! Round trips, and the error and offset for truncated and foreign files.

use proptest::collection::vec;
use proptest::prelude::*;
use std::fs::File;
use std::io::{Seek, Write};
use std::process::Command;
use unconvoy_trace_store::{BATCH, Error, GROUP, Reader, Writer};
use unconvoy_trace_stream::{
    Access, Allocation, Context, Counts, End, Entries, Held, Lock, MAX_FRAMES, Module, Object,
    Place, Record, Region, Section, append,
};

/// A stream with one record of each other kind and the given sections.
fn records(sections: &[Vec<Access>], frames: &[u64], numbers: [u64; 4], name: &str) -> Vec<u8> {
    let mut stream = unconvoy_trace_stream::MAGIC.to_vec();
    let [a, b, c, d] = numbers;
    let context = Context { source: "sim", ..Context::default() }.json();
    append(&mut stream, &Record::Context(&context));
    append(
        &mut stream,
        &Record::Module(Module { region: Region::between(a, b), offset: c, path: name.as_bytes() }),
    );
    let lock = Lock {
        number: a as u32,
        region: Region::new(b, (c as u32).into()),
        incarnation: d as u32,
        pc: a,
        name: name.as_bytes(),
    };
    append(
        &mut stream,
        &Record::Object(Object { region: Region::new(c, d), name: name.as_bytes() }),
    );
    append(&mut stream, &Record::Lock(lock));
    append(&mut stream, &Record::Place(Place { number: a as u32, pc: b }));
    append(&mut stream, &Record::Allocation(Allocation::new(Region::new(a, b), c as u32, frames)));
    for (index, entries) in sections.iter().enumerate() {
        let section = Section {
            lock: b as u32,
            thread: c as u32,
            order: d.wrapping_add(index as u64),
            flags: a as u32,
        };
        append(&mut stream, &Record::Section(section, Entries::from(&entries[..])));
    }
    append(&mut stream, &Record::Allocation(Allocation::new(Region::new(d, c), b as u32, &[])));
    append(
        &mut stream,
        &Record::Counts(Counts { lock: a as u32, acquisitions: b, sampled: c, contended: d }),
    );
    append(&mut stream, &Record::Held(Held { lock: b as u32, held: c, waited: d }));
    append(&mut stream, &Record::End(&End::default().json()));
    stream
}

/// Writes a stream to a temporary trace file.
fn store(stream: &[u8]) -> File {
    let mut reader = unconvoy_trace_stream::Reader::new(stream).unwrap();
    let mut writer = Writer::new(tempfile::tempfile().unwrap()).unwrap();
    while let Some(record) = reader.next_record().unwrap() {
        writer.write(&record).unwrap();
    }
    let mut file = writer.finish().unwrap();
    file.rewind().unwrap();
    file
}

/// The stream read back from a trace file.
fn read_back(file: File) -> Result<Vec<u8>, Error> {
    let mut reader = Reader::new(file)?;
    let mut stream = unconvoy_trace_stream::MAGIC.to_vec();
    while let Some(record) = reader.next_record()? {
        append(&mut stream, &record);
    }
    Ok(stream)
}

fn entry(number: u64) -> Access {
    Access {
        address: number * 8,
        read: 1 + number as u8 % 255,
        written: 0,
        read_place: number as u32,
        written_place: 0,
    }
}

fn temporary(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    file
}

fn bytes(file: File) -> Vec<u8> {
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut &file, &mut bytes).unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn stored_stream_reads_back_equal(
        sections in vec(vec(any::<(u64, u8, u8, u32, u32)>(), 0..9), 0..9),
        frames in vec(any::<u64>(), 0..=MAX_FRAMES),
        numbers: [u64; 4],
        name: String,
    ) {
        let entries = |section: &Vec<(u64, u8, u8, u32, u32)>| -> Vec<Access> {
            let entry = |&(address, read, written, read_place, written_place): &_| Access {
                address: address & !7,
                read: read | u8::from(written == 0),
                written,
                read_place,
                written_place,
            };
            section.iter().map(entry).collect()
        };
        let sections: Vec<Vec<Access>> = sections.iter().map(entries).collect();
        let stream = records(&sections, &frames, numbers, &name);
        prop_assert_eq!(read_back(store(&stream)).unwrap(), stream);
    }

    /// A damaged byte yields a trace or an error, never a panic.
    #[test]
    fn damaged_byte_never_panics(at: prop::sample::Index, value: u8) {
        let stream = records(&vec![vec![entry(1), entry(2)]; 20], &[1, 2], [1, 2, 3, 4], "n");
        let mut bytes = bytes(store(&stream));
        let at = at.index(bytes.len());
        bytes[at] = value;
        let _ = read_back(temporary(&bytes));
    }
}

/// The table of contents has no checksum. (A column's offset after its dictionary once made the
/// decoder panic.)
#[test]
fn damaged_table_of_contents_never_panics() {
    let stream = records(&vec![vec![entry(1), entry(2)]; 20], &[1, 2], [1, 2, 3, 4], "n");
    let whole = bytes(store(&stream));
    let length = whole.len();
    let size = u32::from_le_bytes(whole[length - 8..length - 4].try_into().unwrap()) as usize;
    for at in length - 8 - size..length {
        for flipped in [1, 2, 4, 8, 16, 32, 64, 128, 255] {
            let mut damaged = whole.clone();
            damaged[at] ^= flipped;
            let _ = read_back(temporary(&damaged));
        }
    }
}

/// Sections span batches and row groups.
#[test]
fn sections_across_row_groups_read_back_equal() {
    let sections: Vec<Vec<Access>> = [GROUP - 20, 3, BATCH, GROUP + 5]
        .iter()
        .map(|count| (0..*count as u64).map(entry).collect())
        .collect();
    let stream = records(&sections, &[1, 2, 3], [1, 2, 3, 4], "name");
    assert_eq!(read_back(store(&stream)).unwrap(), stream);
}

#[test]
fn file_truncated_anywhere_fails_at_offset() {
    let whole = bytes(store(&records(&vec![vec![entry(1)]; 3], &[], [1, 2, 3, 4], "")));
    for length in 0..whole.len() {
        match read_back(temporary(&whole[..length])) {
            Err(Error::Truncated { offset }) => assert_eq!(offset, length as u64),
            other => panic!("{length} of {}: {:?}", whole.len(), other.map(|_| "read")),
        }
    }
}

/// A dictionary holds a text once for all rows.
#[test]
fn file_that_unpacks_to_thousands_of_times_its_size_is_rejected() {
    let name = vec![b'n'; 64 << 10];
    let object = Record::Object(Object { region: Region::new(8, 8), name: &name });
    let mut writer = Writer::new(tempfile::tempfile().unwrap()).unwrap();
    (0..2048).for_each(|_| writer.write(&object).unwrap());
    let mut file = writer.finish().unwrap();
    file.rewind().unwrap();
    assert!(file.metadata().unwrap().len() < 60_000, "128 MiB of names");
    match read_back(file) {
        Err(Error::Damaged { what, .. }) if what.contains("times its size") => {}
        other => panic!("{:?}", other.map(|stream| stream.len())),
    }
}

#[test]
fn non_parquet_file_is_rejected() {
    for foreign in [&b"UNCVSET1"[..], b"x", b"{\"schema\": 1}", &[0; 100]] {
        assert!(matches!(read_back(temporary(foreign)), Err(Error::Foreign)));
    }
}

#[test]
fn parquet_file_with_other_columns_is_rejected() {
    use parquet::file::{properties::WriterProperties, writer::SerializedFileWriter};
    let schema =
        parquet::schema::parser::parse_message_type("message other { required int32 lock; }")
            .unwrap();
    let file = tempfile::tempfile().unwrap();
    let writer =
        SerializedFileWriter::new(file, schema.into(), WriterProperties::builder().build().into())
            .unwrap();
    let mut file = writer.into_inner().unwrap();
    let length = file.stream_position().unwrap();
    file.rewind().unwrap();
    assert!(matches!(read_back(file), Err(Error::ForeignColumns { offset }) if offset == length));
}

/// A truncated stream is stored up to the truncation.
#[test]
fn stream_without_end_record_is_stored() {
    let mut writer = Writer::new(tempfile::tempfile().unwrap()).unwrap();
    writer.write(&Record::Place(Place { number: 1, pc: 2 })).unwrap();
    let mut file = writer.finish().unwrap();
    file.rewind().unwrap();
    let mut reader = Reader::new(file).unwrap();
    assert_eq!(reader.next_record().unwrap(), Some(Record::Place(Place { number: 1, pc: 2 })));
    assert_eq!(reader.next_record().unwrap(), None);
}

/// A Python with this module; otherwise prints why the test is skipped. `UNCONVOY_PYTHON` names
/// another interpreter.
fn python_with(module: &str) -> Option<String> {
    let python = std::env::var("UNCONVOY_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&python).args(["-c", &format!("import {module}")]).output();
    let has = has.is_ok_and(|output| output.status.success());
    if !has {
        println!(
            "skipped: {python} has no module {module} (pip install {module}; UNCONVOY_PYTHON \
                names another Python)"
        );
    }
    has.then_some(python)
}

/// Runs a Python program beside a `trace.parquet`. Returns its output.
fn run(python: &str, program: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let mut file = File::create(directory.path().join("trace.parquet")).unwrap();
    let sections =
        vec![vec![entry(1), Access { address: 1 << 63, written: 0xff, ..Access::default() }]; 5];
    file.write_all(&bytes(store(&records(&sections, &[7, 1 << 63], [2, 2, 3, 4], "näme"))))
        .unwrap();
    let output =
        Command::new(python).args(["-c", program]).current_dir(&directory).output().unwrap();
    assert!(output.status.success(), "{program}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const EXPECTED: &str = "[(8, 5, 0), (9223372036854775808, 5, 255)]\n[([7, 9223372036854775808],), \
    ([],)]\n[('näme',)]\n";

#[test]
fn duckdb_reads_trace() {
    let Some(python) = python_with("duckdb") else { return };
    let program = r#"
import duckdb
ask = lambda query: print(duckdb.sql(query).fetchall())
ask("""SELECT address, count(DISTINCT "order"), max(written) FROM 'trace.parquet'
    WHERE record = 'entry' AND lock = 2 GROUP BY address ORDER BY address""")
ask("SELECT frames FROM 'trace.parquet' WHERE record = 'allocation'")
ask("SELECT name FROM 'trace.parquet' WHERE record = 'lock'")
"#;
    assert_eq!(run(&python, program), EXPECTED);
}

#[test]
fn polars_reads_trace() {
    let Some(python) = python_with("polars") else { return };
    let program = r#"
import polars as pl
trace = pl.scan_parquet("trace.parquet")
entries = trace.filter(pl.col("record") == "entry").group_by("address")
entries = entries.agg(pl.col("order").n_unique(), pl.col("written").max()).sort("address")
print(entries.collect().rows())
print(trace.filter(pl.col("record") == "allocation").select("frames").collect().rows())
print(trace.filter(pl.col("record") == "lock").select("name").collect().rows())
"#;
    assert_eq!(run(&python, program), EXPECTED);
}

/// The queries of docs/reference/trace.md run and return rows.
#[test]
fn documented_queries_return_rows() {
    let document = include_str!("../../../../docs/reference/trace.md");
    let blocks = |language: &str| -> Vec<&str> {
        document
            .split(&format!("```{language}\n"))
            .skip(1)
            .map(|rest| rest.split("```").next().unwrap())
            .collect()
    };
    let (sql, polars) = (blocks("sql"), blocks("python"));
    assert_eq!((sql.len(), polars.len()), (2, 1));
    if let Some(python) = python_with("duckdb") {
        for (query, expected) in sql.iter().zip(["80", "5"]) {
            let program = format!(
                "import duckdb\nfor row in duckdb.sql(\"\"\"{}\"\"\").fetchall(): print(row)",
                query
            );
            // The test's lock has another number than the documented one.
            let answer = run(&python, &program.replace("lock = 0", "lock = 2"));
            assert!(answer.contains(expected), "{query}\n{answer}");
        }
    }
    if let Some(python) = python_with("polars") {
        let answer = run(&python, polars[0]);
        assert!(answer.contains("address") && answer.contains("len"), "{answer}");
    }
}
