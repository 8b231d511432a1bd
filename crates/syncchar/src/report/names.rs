//! Names, which only the caller knows.

/// The caller's names for numbers and addresses.
pub trait Names {
    /// A lock's name.
    fn lock(&self, lock: u32) -> Option<String>;
    /// The variable or allocation that contains an address.
    fn word(&self, address: u64) -> Option<String>;
    /// The function and source line of a place.
    fn place(&self, place: u32) -> Option<String>;
    /// The name of a lock's kind, if it is one of many (`dentry.d_lockref`).
    fn class(&self, _lock: u32) -> Option<String> {
        None
    }
    /// Whether it is a reader-writer lock. The model compares with a lock that admits one holder.
    fn admits_readers(&self, _lock: u32) -> bool {
        false
    }
    /// Whether the place is a store that the source makes only under a condition (section 3.3): a
    /// conditional move selects the stored value.
    fn is_conditional_store(&self, place: u32) -> bool;
}

/// Names for a program without symbols: none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nameless;

impl Names for Nameless {
    fn lock(&self, _lock: u32) -> Option<String> {
        None
    }

    fn word(&self, _address: u64) -> Option<String> {
        None
    }

    fn place(&self, _place: u32) -> Option<String> {
        None
    }

    fn is_conditional_store(&self, _place: u32) -> bool {
        false
    }
}
