//! Cache of a kernel's symbols and types between runs. They do not change as long as the same
//! kernel boots with the same modules on the same machine.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::guest::HandedBack;
use super::machine::Machine;
use super::modules::Module;

const SYMBOLS: &str = "kallsyms";
const TYPES: &str = "btf";

/// A directory for one kernel on one machine.
pub struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// Returns the cache for this machine, below `otherwise` if the user has no cache directory.
    ///
    /// # Errors
    ///
    /// The kernel's image cannot be read.
    pub fn of(machine: &Machine, modules: &[Module], otherwise: &Path) -> anyhow::Result<Self> {
        let image = &machine.parts.image;
        let mut hasher = DefaultHasher::new();
        std::fs::read(image).with_context(|| image.display().to_string())?.hash(&mut hasher);
        (modules, machine.shape(), env!("CARGO_PKG_VERSION")).hash(&mut hasher);
        let set = |name: &str| {
            std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
        };
        let users = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
        let name = format!("unconvoy/kernel-{:016x}", hasher.finish());
        let directory = users.map(|users| users.join(&name));
        let usable = directory.filter(|directory| {
            let symbols = directory.join(SYMBOLS);
            let can_write = || unconvoy_measure::output::check(&symbols).is_ok();
            std::fs::create_dir_all(directory).is_ok() && (symbols.is_file() || can_write())
        });
        let directory = usable.unwrap_or_else(|| otherwise.join(&name));
        std::fs::create_dir_all(&directory)?;
        Ok(Self { directory })
    }

    /// Returns whether the cache has symbols.
    pub fn is_filled(&self) -> bool {
        self.symbols_file().is_file()
    }

    /// Stores the kernel's symbols and types. The symbols are stored last and atomically, because
    /// `is_filled` looks for them.
    ///
    /// # Errors
    ///
    /// No space left.
    pub fn fill(&self, back: &HandedBack) -> io::Result<()> {
        unconvoy_measure::output::replace(&self.directory.join(TYPES), &back.btf)?;
        unconvoy_measure::output::replace(&self.symbols_file(), &back.symbols)
    }

    pub fn symbols_file(&self) -> PathBuf {
        self.directory.join(SYMBOLS)
    }

    /// Reads the symbols.
    ///
    /// # Errors
    ///
    /// The file was removed.
    pub fn symbols(&self) -> anyhow::Result<Vec<u8>> {
        let file = self.symbols_file();
        std::fs::read(&file).with_context(|| file.display().to_string())
    }

    /// Reads the types; empty if the kernel has none.
    pub fn btf(&self) -> Vec<u8> {
        std::fs::read(self.directory.join(TYPES)).unwrap_or_default()
    }
}
