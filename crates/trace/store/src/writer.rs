//! Turns records into rows and rows into columns.
//!
//! The table of contents gets a checksum of each row group. Parquet decoders trust the content of a
//! page, so the reader must reject a damaged row group before it decodes any page.

use crate::checksum::{Checksum, Summed};
use crate::error::Error;
use crate::row::{Kind, Row, long, schema, text, word};
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use std::io::Write;
use std::sync::Arc;
use unconvoy_trace_stream::Record;

/// Rows of a row group; the writer holds one in memory.
pub const GROUP: usize = 128 << 10;

/// Writes a trace file. The file is unreadable until [`finish`](Writer::finish).
pub struct Writer<W: Write + Send> {
    file: SerializedFileWriter<Summed<W>>,
    rows: Columns,
    groups: usize,
}

/// The columns of the row group under construction.
#[derive(Default)]
struct Columns {
    rows: usize,
    records: Vec<ByteArray>,
    words: [Sparse<i32>; word::NAMES.len()],
    longs: [Sparse<i64>; long::NAMES.len()],
    texts: [Sparse<ByteArray>; text::NAMES.len()],
    frames: Sparse<i64>,
    /// 0 at a row's first return address or at a row without any; 1 at each further address.
    frame_repetition: Vec<i16>,
}

/// A nullable column: its values, and for each row whether it has one.
#[derive(Default)]
struct Sparse<T> {
    values: Vec<T>,
    levels: Vec<i16>,
}

impl<T> Sparse<T> {
    fn push(&mut self, value: Option<T>) {
        self.levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }
}

impl<W: Write + Send> Writer<W> {
    /// Starts a file.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] if the file cannot be written.
    pub fn new(to: W) -> Result<Self, Error> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("unconvoy ", env!("CARGO_PKG_VERSION")).to_string())
            // Statistics per row group let a query for one lock skip the groups without that lock.
            // Statistics per page are not worth their space.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .build();
        let file = SerializedFileWriter::new(Summed::new(to), schema(), Arc::new(properties))
            .map_err(Error::Write)?;
        Ok(Writer { file, rows: Columns::default(), groups: 0 })
    }

    /// Adds a record.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] if the file cannot be written.
    pub fn write(&mut self, record: &Record) -> Result<(), Error> {
        match record {
            Record::Context(json) => {
                self.row(Row::new(Kind::Context).text(text::JSON, json.as_bytes()))
            }
            Record::End(json) => self.row(Row::new(Kind::End).text(text::JSON, json.as_bytes())),
            Record::Module(module) => self.row(
                Row::new(Kind::Module)
                    .region(module.region)
                    .long(long::FILE_OFFSET, module.offset)
                    .text(text::NAME, module.path),
            ),
            Record::Lock(lock) => self.row(
                Row::new(Kind::Lock)
                    .word(word::LOCK, lock.number)
                    .word(word::INCARNATION, lock.incarnation)
                    .region(lock.region)
                    .long(long::PC, lock.pc)
                    .text(text::NAME, lock.name),
            ),
            Record::Section(section, entries) => {
                let row = |kind| {
                    Row::new(kind)
                        .word(word::LOCK, section.lock)
                        .word(word::THREAD, section.thread)
                        .word(word::FLAGS, section.flags)
                        .long(long::ORDER, section.order)
                };
                self.row(row(Kind::Section).word(word::ENTRIES, entries.len() as u32))?;
                for entry in entries.iter() {
                    self.row(
                        row(Kind::Entry)
                            .long(long::ADDRESS, entry.address)
                            .word(word::READ, entry.read.into())
                            .word(word::WRITTEN, entry.written.into())
                            .word(word::READ_PLACE, entry.read_place)
                            .word(word::WRITTEN_PLACE, entry.written_place),
                    )?;
                }
                Ok(())
            }
            Record::Place(place) => self.row(
                Row::new(Kind::Place).word(word::PLACE, place.number).long(long::PC, place.pc),
            ),
            Record::Allocation(allocation) => {
                let row = Row::new(Kind::Allocation)
                    .word(word::THREAD, allocation.thread)
                    .region(allocation.region);
                self.row(Row { frames: allocation.frames().collect(), ..row })
            }
            Record::Counts(counts) => self.row(
                Row::new(Kind::Counts)
                    .word(word::LOCK, counts.lock)
                    .long(long::ACQUISITIONS, counts.acquisitions)
                    .long(long::SAMPLED, counts.sampled)
                    .long(long::CONTENDED, counts.contended),
            ),
            Record::Object(object) => {
                self.row(Row::new(Kind::Object).region(object.region).text(text::NAME, object.name))
            }
            Record::Held(held) => self.row(
                Row::new(Kind::Held)
                    .word(word::LOCK, held.lock)
                    .long(long::HELD, held.held)
                    .long(long::WAITED, held.waited),
            ),
        }
    }

    /// Writes the last rows and the table of contents. Returns the underlying writer, flushed.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] if the file cannot be written.
    pub fn finish(mut self) -> Result<W, Error> {
        self.flush()?;
        let mut to = self.file.into_inner().map_err(Error::Write)?.to;
        to.flush().map_err(|error| Error::Write(error.into()))?;
        Ok(to)
    }

    fn row(&mut self, row: Row) -> Result<(), Error> {
        self.rows.push(row);
        if self.rows.rows == GROUP { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.rows.rows == 0 {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows);
        let number = self.groups;
        self.groups += 1;
        let write = |file: &mut SerializedFileWriter<Summed<W>>| {
            file.flush()?;
            file.inner_mut().start();
            let mut group = file.next_row_group()?;
            rows.write(&mut group)?;
            group.close()?;
            file.flush()?;
            let checksum = file.inner().checksum();
            file.append_key_value_metadata(KeyValue::new(
                Checksum::key(number),
                checksum.to_string(),
            ));
            Ok(())
        };
        write(&mut self.file).map_err(Error::Write)
    }
}

impl Columns {
    fn push(&mut self, row: Row) {
        self.rows += 1;
        let (_, name) = Kind::ALL[row.kind as usize];
        self.records.push(ByteArray::from(name));
        // Parquet stores unsigned integers with the bits of signed ones.
        for (column, value) in self.words.iter_mut().zip(row.words) {
            column.push(value.map(|value| value as i32));
        }
        for (column, value) in self.longs.iter_mut().zip(row.longs) {
            column.push(value.map(|value| value as i64));
        }
        for (column, value) in self.texts.iter_mut().zip(row.texts) {
            column.push(value);
        }
        // Level 0: no list. 1: an empty list. 2: an element.
        match (row.kind, &row.frames[..]) {
            (Kind::Allocation, []) => self.frames.levels.push(1),
            (_, []) => self.frames.levels.push(0),
            (_, frames) => self.frames.levels.extend(frames.iter().map(|_| 2)),
        }
        self.frame_repetition.push(0);
        self.frame_repetition.extend(row.frames.iter().skip(1).map(|_| 1));
        self.frames.values.extend(row.frames.iter().map(|frame| *frame as i64));
    }

    fn write<W: Write + Send>(
        &self,
        group: &mut SerializedRowGroupWriter<W>,
    ) -> Result<(), ParquetError> {
        column::<ByteArrayType, W>(group, &self.records, None, None)?;
        for sparse in &self.words {
            column::<Int32Type, W>(group, &sparse.values, Some(&sparse.levels), None)?;
        }
        for sparse in &self.longs {
            column::<Int64Type, W>(group, &sparse.values, Some(&sparse.levels), None)?;
        }
        for sparse in &self.texts {
            column::<ByteArrayType, W>(group, &sparse.values, Some(&sparse.levels), None)?;
        }
        column::<Int64Type, W>(
            group,
            &self.frames.values,
            Some(&self.frames.levels),
            Some(&self.frame_repetition),
        )
    }
}

/// Writes the next column of a row group.
fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<W>,
    values: &[T::T],
    definition: Option<&[i16]>,
    repetition: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column =
        group.next_column()?.ok_or_else(|| ParquetError::General("too few columns".into()))?;
    column.typed::<T>().write_batch(values, definition, repetition)?;
    column.close()
}
