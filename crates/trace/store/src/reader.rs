//! Turns columns into rows and rows into records.

use crate::bounds::{BoundedPages, TextBudget};
use crate::checksum::Checksum;
use crate::error::Error;
use crate::row::{FRAMES, Kind, LONGS, Row, TEXTS, WORDS, long, schema, text, word};
use crate::writer::GROUP;
use parquet::column::reader::{
    ColumnReader, ColumnReaderImpl, get_column_reader, get_typed_column_reader,
};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, FileReader, SerializedFileReader};
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use unconvoy_trace_stream::{
    Access, Allocation, Counts, Entries, Held, Lock, MAX_ENTRIES, MAX_FRAMES, Module, Object,
    Place, Record, Region, Section,
};

/// Rows decoded at once.
pub const BATCH: usize = 8 << 10;

const MAGIC: &[u8] = b"PAR1";

/// Reads the records of a trace file. Text that was not UTF-8 comes back with replacement
/// characters.
pub struct Reader {
    /// The file again, for its pages and their checksums, which the decoder ignores.
    bytes: Arc<File>,
    file: SerializedFileReader<File>,
    length: u64,
    /// The next row group.
    group: usize,
    columns: Option<Columns>,
    texts: TextBudget,
    rows: VecDeque<Row>,
    /// The row that the last record borrows from.
    row: Option<Row>,
    entries: Vec<Access>,
}

/// The columns of the row group being read.
struct Columns {
    /// Rows not read yet.
    left: usize,
    record: Column<ByteArrayType>,
    words: Vec<Column<Int32Type>>,
    longs: Vec<Column<Int64Type>>,
    texts: Vec<Column<ByteArrayType>>,
    frames: Column<Int64Type>,
}

/// A column and its current batch.
struct Column<T: DataType> {
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
    definition: Vec<i16>,
    repetition: Vec<i16>,
    /// The definition level of a value.
    defined: i16,
}

impl Reader {
    /// Opens a trace file.
    ///
    /// # Errors
    ///
    /// The file is foreign, truncated, damaged or unreadable; see [`Error::offset`].
    pub fn new(from: File) -> Result<Self, Error> {
        let failed = |error: std::io::Error| Error::Read(error.into());
        let length = from.metadata().map_err(failed)?.len();
        let bytes = Arc::new(from.try_clone().map_err(failed)?);
        let head = from.get_bytes(0, length.min(4) as usize).map_err(Error::Read)?;
        if head[..] != MAGIC[..head.len()] {
            return Err(Error::Foreign);
        }
        // The shortest file has the magic, the length of the table of contents, and the magic
        // again.
        if length < 12 || from.get_bytes(length - 4, 4).map_err(Error::Read)?[..] != *MAGIC {
            return Err(Error::Truncated { offset: length });
        }
        let file = SerializedFileReader::new(from)
            .map_err(|error| Error::Damaged { offset: length, what: error.to_string() })?;
        if *file.metadata().file_metadata().schema() != *schema() {
            return Err(Error::ForeignColumns { offset: length });
        }
        if let Some(what) = impossible(file.metadata(), length) {
            return Err(Error::Damaged { offset: length, what: what.into() });
        }
        Ok(Reader {
            bytes,
            file,
            length,
            group: 0,
            columns: None,
            texts: TextBudget::of(length),
            rows: VecDeque::new(),
            row: None,
            entries: Vec::new(),
        })
    }

    /// The next record, or `None` at the end. If the last record is not an end record, the stream
    /// was truncated.
    ///
    /// # Errors
    ///
    /// The file is damaged. Do not read on after an error.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, Error> {
        let Some(row) = self.next_row()? else { return Ok(None) };
        let offset = self.offset();
        self.entries.clear();
        if row.kind == Kind::Section {
            let count = row.words[word::ENTRIES].unwrap_or(0);
            if count as usize > MAX_ENTRIES {
                return Err(Error::Damaged {
                    offset,
                    what: "a section has too many entries".into(),
                });
            }
            for _ in 0..count {
                let entry = self.next_row()?.as_ref().and_then(entry);
                self.entries.push(entry.ok_or_else(|| missing(offset))?);
            }
        }
        let row = self.row.insert(row);
        record(row, &self.entries).map(Some).ok_or_else(|| missing(offset))
    }

    /// The start of the current row group.
    fn offset(&self) -> u64 {
        let groups = self.file.metadata().row_groups();
        let at_hand = groups.get(self.group.saturating_sub(1));
        at_hand.map_or(self.length, |group| {
            group.columns().first().map_or(0, |column| column.byte_range().0)
        })
    }

    fn next_row(&mut self) -> Result<Option<Row>, Error> {
        while self.rows.is_empty() {
            if self.columns.as_ref().is_none_or(|columns| columns.left == 0) {
                if self.group == self.file.num_row_groups() {
                    return Ok(None);
                }
                self.group += 1;
                self.check(self.group - 1)?;
                let columns = Columns::new(&self.bytes, self.file.metadata(), self.group - 1);
                self.columns = Some(columns.map_err(|error| self.damaged(error))?);
            }
            let columns = self.columns.as_mut().expect("just opened");
            if let Err(error) = columns.read(&mut self.rows, &mut self.texts) {
                return Err(self.damaged(error));
            }
        }
        Ok(self.rows.pop_front())
    }

    /// Checks that the group's checksum matches and covers all columns to be read.
    fn check(&self, group: usize) -> Result<(), Error> {
        let contents = self.file.metadata();
        let key = Checksum::key(group);
        let mut pairs = contents.file_metadata().key_value_metadata().into_iter().flatten();
        let value = pairs.find(|pair| pair.key == key).and_then(|pair| pair.value.as_deref());
        let damaged = |what: &str| Error::Damaged { offset: self.offset(), what: what.into() };
        let checksum = value
            .and_then(Checksum::parse)
            .ok_or_else(|| damaged("a row group has no checksum"))?;
        // The columns fill the range without a gap. A damaged offset would make the decoder begin
        // within a column, after the dictionary that its pages need.
        let end =
            contents.row_group(group).columns().iter().try_fold(checksum.start, |at, column| {
                let (start, size) = column.byte_range();
                start.checked_add(size).filter(|_| start == at)
            });
        let covered = end == Some(checksum.end);
        let holds =
            covered && checksum.holds(&self.bytes).map_err(|error| Error::Read(error.into()))?;
        if holds { Ok(()) } else { Err(damaged("checksum mismatch in a row group")) }
    }

    fn damaged(&self, error: ParquetError) -> Error {
        Error::Damaged { offset: self.offset(), what: error.to_string() }
    }
}

/// Finds an impossible value in the table of contents, because the decoder would trust it.
fn impossible(contents: &ParquetMetaData, length: u64) -> Option<&'static str> {
    let columns = contents.file_metadata().schema_descr().num_columns();
    for group in contents.row_groups() {
        if group.num_columns() != columns || !(0..=GROUP as i64).contains(&group.num_rows()) {
            return Some("a row group has a wrong number of columns or rows");
        }
        for column in group.columns() {
            let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
            let (start, size) = (u64::try_from(start), u64::try_from(column.compressed_size()));
            let (Ok(start), Ok(size)) = (start, size) else {
                return Some("a column has a negative offset or size");
            };
            if start.checked_add(size).is_none_or(|end| end > length) || column.num_values() < 0 {
                return Some("a column extends past the end of the file");
            }
        }
    }
    None
}

fn missing(offset: u64) -> Error {
    Error::Damaged { offset, what: "a row lacks a column that its kind needs".into() }
}

fn entry(row: &Row) -> Option<Access> {
    let small = |column: usize| u8::try_from(row.words[column]?).ok();
    (row.kind == Kind::Entry).then_some(())?;
    Some(Access {
        address: row.longs[long::ADDRESS]?,
        read: small(word::READ)?,
        written: small(word::WRITTEN)?,
        read_place: row.words[word::READ_PLACE]?,
        written_place: row.words[word::WRITTEN_PLACE]?,
    })
}

/// The record of a row; `None` if the row lacks a column that its kind needs.
fn record<'a>(row: &'a Row, entries: &'a [Access]) -> Option<Record<'a>> {
    let text_at = |column: usize| row.texts[column].as_ref().map(ByteArray::data);
    let json = || std::str::from_utf8(text_at(text::JSON)?).ok();
    let region = || Some(Region::new(row.longs[long::ADDRESS]?, row.longs[long::SIZE]?));
    Some(match row.kind {
        Kind::Context => Record::Context(json()?),
        Kind::End => Record::End(json()?),
        Kind::Module => Record::Module(Module {
            region: region()?,
            offset: row.longs[long::FILE_OFFSET]?,
            path: text_at(text::NAME)?,
        }),
        Kind::Lock => Record::Lock(Lock {
            number: row.words[word::LOCK]?,
            region: region().filter(|region| u32::try_from(region.size).is_ok())?,
            incarnation: row.words[word::INCARNATION]?,
            pc: row.longs[long::PC]?,
            name: text_at(text::NAME)?,
        }),
        Kind::Section => {
            let section = Section {
                lock: row.words[word::LOCK]?,
                thread: row.words[word::THREAD]?,
                order: row.longs[long::ORDER]?,
                flags: row.words[word::FLAGS]?,
            };
            Record::Section(section, Entries::from(entries))
        }
        // The entry's section consumes it.
        Kind::Entry => return None,
        Kind::Place => {
            Record::Place(Place { number: row.words[word::PLACE]?, pc: row.longs[long::PC]? })
        }
        Kind::Allocation => {
            Record::Allocation(Allocation::new(region()?, row.words[word::THREAD]?, &row.frames))
        }
        Kind::Counts => Record::Counts(Counts {
            lock: row.words[word::LOCK]?,
            acquisitions: row.longs[long::ACQUISITIONS]?,
            sampled: row.longs[long::SAMPLED]?,
            contended: row.longs[long::CONTENDED]?,
        }),
        Kind::Object => Record::Object(Object { region: region()?, name: text_at(text::NAME)? }),
        Kind::Held => Record::Held(Held {
            lock: row.words[word::LOCK]?,
            held: row.longs[long::HELD]?,
            waited: row.longs[long::WAITED]?,
        }),
    })
}

impl Columns {
    fn new(
        file: &Arc<File>,
        contents: &ParquetMetaData,
        group: usize,
    ) -> Result<Self, ParquetError> {
        let group = contents.row_group(group);
        let rows = usize::try_from(group.num_rows()).map_err(|_| inconsistent())?;
        let open = |index: usize| -> Result<ColumnReader, ParquetError> {
            let most = rows.saturating_mul(MAX_FRAMES);
            let pages = BoundedPages::new(file, group.column(index), rows, most)?;
            let description = group.schema_descr().column(index);
            Ok(get_column_reader(description, Box::new(pages)))
        };
        Ok(Columns {
            left: rows,
            record: Column::new(open(0)?, 0),
            words: (WORDS..LONGS)
                .map(|index| Ok(Column::new(open(index)?, 1)))
                .collect::<Result<_, ParquetError>>()?,
            longs: (LONGS..TEXTS)
                .map(|index| Ok(Column::new(open(index)?, 1)))
                .collect::<Result<_, ParquetError>>()?,
            texts: (TEXTS..FRAMES)
                .map(|index| Ok(Column::new(open(index)?, 1)))
                .collect::<Result<_, ParquetError>>()?,
            frames: Column::new(open(FRAMES)?, 2),
        })
    }

    /// Reads the next batch of rows.
    fn read(
        &mut self,
        rows: &mut VecDeque<Row>,
        texts: &mut TextBudget,
    ) -> Result<(), ParquetError> {
        let count = self.left.min(BATCH);
        self.left -= count;
        self.record.read(count)?;
        let start = rows.len();
        for name in &self.record.values {
            let kind = Kind::named(name.data())
                .ok_or_else(|| ParquetError::General("a row of unknown kind".into()))?;
            rows.push_back(Row::new(kind));
        }
        let rows = &mut rows.make_contiguous()[start..];
        for (index, column) in self.words.iter_mut().enumerate() {
            column.read(count)?.spread(|row, value| rows[row].words[index] = Some(*value as u32));
        }
        for (index, column) in self.longs.iter_mut().enumerate() {
            column.read(count)?.spread(|row, value| rows[row].longs[index] = Some(*value as u64));
        }
        for (index, column) in self.texts.iter_mut().enumerate() {
            let column = column.read(count)?;
            texts.spend(column.values.iter().map(|value| value.len() as u64).sum())?;
            column.spread(|row, value| rows[row].texts[index] = Some(value.clone()));
        }
        self.frames.read(count)?.spread(|row, value| rows[row].frames.push(*value as u64));
        Ok(())
    }
}

fn inconsistent() -> ParquetError {
    ParquetError::General("columns differ in length".into())
}

impl<T: DataType> Column<T> {
    fn new(reader: ColumnReader, defined: i16) -> Self {
        let reader = get_typed_column_reader(reader);
        Column {
            reader,
            values: Vec::new(),
            definition: Vec::new(),
            repetition: Vec::new(),
            defined,
        }
    }

    /// Reads exactly `rows` rows.
    fn read(&mut self, rows: usize) -> Result<&Self, ParquetError> {
        self.values.clear();
        self.definition.clear();
        self.repetition.clear();
        let mut read = 0;
        while read < rows {
            let (definition, repetition) = (&mut self.definition, &mut self.repetition);
            let (got, _, _) = self.reader.read_records(
                rows - read,
                Some(definition),
                Some(repetition),
                &mut self.values,
            )?;
            if got == 0 {
                return Err(inconsistent());
            }
            read += got;
        }
        let values = match self.defined {
            0 => rows,
            level => self.definition.iter().filter(|defined| **defined == level).count(),
        };
        let levels = self.defined == 0 || self.definition.len() >= rows;
        if values != self.values.len() || !levels { Err(inconsistent()) } else { Ok(self) }
    }

    /// Calls `each` for every value in the batch, with the index of its row.
    fn spread(&self, mut each: impl FnMut(usize, &T::T)) {
        let mut values = self.values.iter();
        let mut row = 0;
        for (index, level) in self.definition.iter().enumerate() {
            // Without repetition levels each definition level is one row.
            let starts = self.repetition.get(index).is_none_or(|repetition| *repetition == 0);
            row += usize::from(starts && index > 0);
            if *level == self.defined
                && let Some(value) = values.next()
            {
                each(row, value);
            }
        }
    }
}
