//! Bounds on what a trace file unpacks to.
//!
//! A few bytes of a file can stand for gigabytes: a dictionary holds a text once for all rows, and
//! a run of equal values is one value with a length. The writer makes no such file, but somebody
//! else may have made the one being read. Rows need no bound here: the reader rejects a row group
//! of more than [`GROUP`](crate::GROUP) rows, and each has some kilobytes of headers.
//!
//! The decoder would allocate a page before it decompresses the page, and a dictionary before it
//! reads the values, of any size that the page's header claims. [`BoundedPages`] therefore declares
//! the pages uncompressed, so that the decoder ignores the size, and decompresses them itself. It
//! compares a dictionary's number of values with its bytes. The decoders of other encodings than
//! the writer's allocate by numbers within a page, so pages in these encodings are rejected.

use std::fs::File;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use snap::raw::{Decoder, decompress_len};
use unconvoy_trace_stream::MAX_PAYLOAD;

/// Texts unpack to at most this many times the file's size, and one text of the greatest length. A
/// row with a name has an address or number of its own, which takes bytes in the file, so names of
/// usual lengths stay far below.
const TIMES: u64 = 1_000;

/// A page unpacks to at most this many times its size: Snappy's densest element is a copy of 64
/// bytes in 3 bytes.
const DENSEST: usize = 22;

/// Fewest bytes of a value in a dictionary: a number of 32 bits, or the length of a text.
const LEAST_VALUE: usize = 4;

/// The writer's encodings of pages, the second under its two names.
const ENCODINGS: [Encoding; 3] =
    [Encoding::PLAIN, Encoding::RLE_DICTIONARY, Encoding::PLAIN_DICTIONARY];

/// Bytes of text that a file may still unpack to.
pub(crate) struct TextBudget(u64);

impl TextBudget {
    /// The budget of a file of `length` bytes.
    pub fn of(length: u64) -> Self {
        TextBudget(length.saturating_mul(TIMES).saturating_add(MAX_PAYLOAD as u64))
    }

    /// Takes `bytes` from the budget.
    ///
    /// # Errors
    ///
    /// The budget is exceeded.
    pub fn spend(&mut self, bytes: u64) -> Result<()> {
        let left = self.0.checked_sub(bytes);
        let exceeded = || format!("the file's texts unpack to more than {TIMES} times its size");
        self.0 = left.ok_or_else(|| ParquetError::General(exceeded()))?;
        Ok(())
    }
}

/// The pages of a column, up to a number of values.
pub(crate) struct BoundedPages {
    pages: Box<dyn PageReader>,
    is_compressed: bool,
    /// Values that further pages may have.
    left: usize,
}

impl BoundedPages {
    /// The pages of a column of `rows` rows that has at most `values` values.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has another compression than the writer's.
    pub fn new(
        file: &Arc<File>,
        column: &ColumnChunkMetaData,
        rows: usize,
        values: usize,
    ) -> Result<Self> {
        let mut column = column.clone();
        let is_compressed = column.compression() == Compression::SNAPPY;
        if is_compressed {
            column = column.into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
        }
        let pages = SerializedPageReader::new(Arc::clone(file), &column, rows, None)?;
        Ok(BoundedPages { pages: Box::new(pages), is_compressed, left: values })
    }
}

impl Iterator for BoundedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

impl PageReader for BoundedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let mut page = self.pages.get_next_page()?;
        if let Some(page) = page.as_mut().filter(|_| self.is_compressed) {
            decompress(page)?;
        }
        if page.as_ref().is_some_and(|page| !ENCODINGS.contains(&page.encoding())) {
            return Err(ParquetError::General("a page has an unknown encoding".into()));
        }
        if let Some(Page::DictionaryPage { buf, num_values, .. }) = &page
            && *num_values as usize > buf.len() / LEAST_VALUE
        {
            return Err(ParquetError::General("a dictionary has too many values".into()));
        }
        if let Some(page) = page.as_ref().filter(|page| page.is_data_page()) {
            let left = self.left.checked_sub(page.num_values() as usize);
            let exceeded = || ParquetError::General("a column has too many values".into());
            self.left = left.ok_or_else(exceeded)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

/// Decompresses a page in place. The writer makes no pages of version 2.
fn decompress(page: &mut Page) -> Result<()> {
    let (Page::DictionaryPage { buf, .. } | Page::DataPage { buf, .. }) = page else {
        return Err(ParquetError::General("a page has an unknown format".into()));
    };
    *buf = decompressed(buf)?.into();
    Ok(())
}

fn decompressed(bytes: &[u8]) -> Result<Vec<u8>> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let failed = |error: snap::Error| ParquetError::External(error.into());
    if decompress_len(bytes).map_err(failed)? > bytes.len().saturating_mul(DENSEST) {
        return Err(ParquetError::General("a page claims to unpack to an impossible size".into()));
    }
    Decoder::new().decompress_vec(bytes).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These pages, the last first.
    struct Pages(Vec<Page>);

    impl Iterator for Pages {
        type Item = Result<Page>;

        fn next(&mut self) -> Option<Result<Page>> {
            self.get_next_page().transpose()
        }
    }

    impl PageReader for Pages {
        fn get_next_page(&mut self) -> Result<Option<Page>> {
            Ok(self.0.pop())
        }

        fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
            Ok(None)
        }

        fn skip_next_page(&mut self) -> Result<()> {
            Ok(())
        }
    }

    /// The numbers of values of these pages, in a column of at most ten values.
    fn read(pages: Vec<Page>) -> Result<Vec<u32>> {
        let pages = Box::new(Pages(pages));
        let pages = BoundedPages { pages, is_compressed: false, left: 10 };
        pages.map(|page| page.map(|page| page.num_values())).collect()
    }

    fn data(num_values: u32, encoding: Encoding) -> Page {
        Page::DataPage {
            buf: Vec::<u8>::new().into(),
            num_values,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        }
    }

    #[test]
    fn run_of_values_beyond_the_bound_is_rejected() {
        let page = |&values: &u32| data(values, Encoding::RLE_DICTIONARY);
        let read = |pages: &[u32]| read(pages.iter().map(page).collect());
        assert_eq!(read(&[4, 6]).expect("within the bound"), [6, 4]);
        assert!(read(&[5, 6]).is_err() && read(&[u32::MAX]).is_err());
    }

    #[test]
    fn encoding_that_the_writer_does_not_use_is_rejected() {
        assert!(read(vec![data(1, Encoding::PLAIN)]).is_ok());
        let others = [Encoding::DELTA_BINARY_PACKED, Encoding::DELTA_LENGTH_BYTE_ARRAY];
        assert!(others.iter().all(|&other| read(vec![data(1, other)]).is_err()));
    }

    /// The decoder allocates as many values as the dictionary claims to have.
    #[test]
    fn dictionary_with_more_values_than_bytes_for_them_is_rejected() {
        let page = |num_values| Page::DictionaryPage {
            buf: vec![0; 4].into(),
            num_values,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        assert_eq!(read(vec![page(1)]).expect("within the bound"), [1]);
        assert!(read(vec![page(2)]).is_err() && read(vec![page(i32::MAX as u32)]).is_err());
    }
}
