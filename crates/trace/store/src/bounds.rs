//! Bounds on what a trace file unpacks to.
//!
//! A few bytes of a file can stand for gigabytes: a dictionary holds a text once for all rows, and
//! a run of equal values is one value with a length. The writer makes no such file, but somebody
//! else may have made the one being read. Rows need no bound here: the reader rejects a row group
//! of more than [`GROUP`](crate::GROUP) rows, and each has some kilobytes of headers.
//!
//! Not bounded: the decoder allocates a page before it decompresses it, up to 2 GiB if the page's
//! header says so.

use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use unconvoy_trace_stream::MAX_PAYLOAD;

/// Texts unpack to at most this many times the file's size, and one text of the greatest length. A
/// row with a name has an address or number of its own, which takes bytes in the file, so names of
/// usual lengths stay far below.
const TIMES: u64 = 1_000;

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
    /// Values that further pages may have.
    left: usize,
}

impl BoundedPages {
    /// The pages of a column that has at most `values` values.
    pub fn new(pages: Box<dyn PageReader>, values: usize) -> Self {
        BoundedPages { pages, left: values }
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
        let page = self.pages.get_next_page()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::basic::Encoding;

    /// Pages with these numbers of values.
    struct Pages(Vec<u32>);

    impl Iterator for Pages {
        type Item = Result<Page>;

        fn next(&mut self) -> Option<Result<Page>> {
            self.get_next_page().transpose()
        }
    }

    impl PageReader for Pages {
        fn get_next_page(&mut self) -> Result<Option<Page>> {
            Ok(self.0.pop().map(|num_values| Page::DataPage {
                buf: Vec::<u8>::new().into(),
                num_values,
                encoding: Encoding::RLE_DICTIONARY,
                def_level_encoding: Encoding::RLE,
                rep_level_encoding: Encoding::RLE,
                statistics: None,
            }))
        }

        fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
            Ok(None)
        }

        fn skip_next_page(&mut self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn run_of_values_beyond_the_bound_is_rejected() {
        let read = |pages: &[u32]| {
            let pages = BoundedPages::new(Box::new(Pages(pages.to_vec())), 10);
            pages.map(|page| page.map(|page| page.num_values())).collect::<Result<Vec<_>>>()
        };
        assert_eq!(read(&[4, 6]).expect("within the bound"), [6, 4]);
        assert!(read(&[5, 6]).is_err() && read(&[u32::MAX]).is_err());
    }
}
