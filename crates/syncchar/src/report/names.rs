//! Names, which only a caller knows.

/// What a caller knows of the program: names for numbers.
pub trait Names {
    /// A lock's name.
    fn lock(&self, lock: u32) -> Option<String>;
    /// The variable, or the allocation, that an address belongs to.
    fn word(&self, address: u64) -> Option<String>;
    /// The function and source line of a place.
    fn place(&self, place: u32) -> Option<String>;
    /// What all locks of its kind are called, where a lock may be one of many (`dentry.d_lockref`).
    fn class(&self, _lock: u32) -> Option<String> {
        None
    }
    /// Whether the place is a store that the source makes only under a condition (section 3.3): a
    /// conditional move chose what it stores.
    fn is_conditional_store(&self, place: u32) -> bool;
}

/// For a program of which nothing is known.
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
