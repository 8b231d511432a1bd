//! What the tables of the catalogue are made of.

/// One nameable half of a lock, or a sensor of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// What a user writes: `--lock NAME`, `--load NAME` or `--sensor NAME`.
    pub name: &'static str,
    /// One sentence for `--help` and `unconvoy locks`.
    pub summary: &'static str,
}

/// The entries of a table, in its order.
macro_rules! entries {
    ($table:ident) => {
        &{
            let mut entries = [$table[0].entry; $table.len()];
            let mut place = 0;
            while place < entries.len() {
                entries[place] = $table[place].entry;
                place += 1;
            }
            entries
        }
    };
}

pub(super) use entries;

/// When to take a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// For these programs and machines.
    For(&'static str),
    /// Not for production: the lock is here to be compared with.
    Comparison(&'static str),
}
