//! Building blocks of the catalogue's tables.

/// A half of a lock that a user can name, or a sensor of the load.
///
/// ```
/// use unconvoy::catalogue::{Entry, LOAD};
///
/// for Entry { name, summary } in LOAD {
///     println!("{name}: {summary}");
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The name that a user writes: `--lock NAME`, `--load NAME` or `--sensor NAME`.
    pub name: &'static str,
    /// One line for `--help` and `unconvoy locks`.
    pub summary: &'static str,
}

/// The entries of a table, in its order.
macro_rules! entries {
    ($table:ident) => {
        &{
            let mut entries = [$table[0].entry; $table.len()];
            let mut index = 0;
            while index < entries.len() {
                entries[index] = $table[index].entry;
                index += 1;
            }
            entries
        }
    };
}

pub(super) use entries;

/// When to use a lock.
///
/// ```
/// use unconvoy::catalogue::{LOAD_MANAGERS, Purpose};
///
/// let is_for_comparison = |name| {
///     let load = LOAD_MANAGERS.iter().find(|load| load.entry.name == name).unwrap();
///     matches!(load.purpose, Purpose::Comparison(_))
/// };
/// assert!(is_for_comparison("published"));
/// assert!(!is_for_comparison("control"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// For the programs and machines in the field.
    For(&'static str),
    /// Not for production, only for comparisons.
    Comparison(&'static str),
}
