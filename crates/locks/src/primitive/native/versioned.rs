//! Names of global symbols.

/// The name of a symbol with the crate's version: two versions can be in one program. With more
/// arguments, the text around it.
macro_rules! versioned {
    ($name:literal) => {
        concat!($name, "_", env!("CARGO_PKG_VERSION_MAJOR"), "_", env!("CARGO_PKG_VERSION_MINOR"))
    };
    ($before:literal, $name:literal, $after:literal) => {
        concat!($before, versioned!($name), $after)
    };
}

pub(crate) use versioned;
