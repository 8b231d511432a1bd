//! What a kernel has told of itself, kept from run to run: it is the same whenever the same kernel boots with the same modules on the same machine.

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
    /// The one for this machine; in `otherwise` if the user has no directory for such.
    ///
    /// # Errors
    ///
    /// The kernel cannot be read.
    pub fn of(machine: &Machine, modules: &[Module], otherwise: &Path) -> anyhow::Result<Self> {
        let image = &machine.parts.image;
        let mut hasher = DefaultHasher::new();
        std::fs::read(image).with_context(|| image.display().to_string())?.hash(&mut hasher);
        (modules, machine.shape(), env!("CARGO_PKG_VERSION")).hash(&mut hasher);
        let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let users = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
        let name = format!("unconvoy/kernel-{:016x}", hasher.finish());
        let directory = users.map(|users| users.join(&name));
        let usable = directory.filter(|directory| std::fs::create_dir_all(directory).is_ok());
        let directory = usable.unwrap_or_else(|| otherwise.join(&name));
        std::fs::create_dir_all(&directory)?;
        Ok(Self { directory })
    }

    /// Whether there is something in it.
    pub fn is_filled(&self) -> bool {
        self.symbols_file().is_file()
    }

    /// Puts in what the kernel told. The symbols last, and whole or not at all: they are what is looked for.
    ///
    /// # Errors
    ///
    /// No space.
    pub fn fill(&self, told: &HandedBack) -> io::Result<()> {
        unconvoy_measure::output::replace(&self.directory.join(TYPES), &told.btf)?;
        unconvoy_measure::output::replace(&self.symbols_file(), &told.symbols)
    }

    /// The file of symbols.
    pub fn symbols_file(&self) -> PathBuf {
        self.directory.join(SYMBOLS)
    }

    /// What is in it.
    ///
    /// # Errors
    ///
    /// It is gone.
    pub fn symbols(&self) -> anyhow::Result<Vec<u8>> {
        let file = self.symbols_file();
        std::fs::read(&file).with_context(|| file.display().to_string())
    }

    /// The types; empty if the kernel told none.
    pub fn btf(&self) -> Vec<u8> {
        std::fs::read(self.directory.join(TYPES)).unwrap_or_default()
    }
}
