//! The modules of one compilation target, and the paths that each of them names.

use std::collections::HashMap;

/// A module's index in [`Tree::modules`].
pub type ModuleId = usize;

/// The index of a file in [`Tree::files`].
pub type FileId = usize;

/// A path as it is written, `$crate` being `crate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// `["super", "queue", "Node"]`
    pub segments: Vec<String>,
    /// Counted from 1.
    pub line: usize,
    /// The path names a macro that is called, which may be in scope without an import.
    pub is_macro_call: bool,
}

impl Written {
    /// As in the source.
    pub fn text(&self) -> String {
        self.segments.join("::")
    }
}

/// One leaf of a `use` item.
#[derive(Debug)]
pub struct Import {
    /// What is imported; of a glob, the part before `::*`.
    pub path: Written,
    /// Begins with `::`, hence names another package.
    pub is_extern: bool,
    /// `*`
    pub is_glob: bool,
    /// Others may import the name from here (`pub`, `pub(crate)`, ...).
    pub is_reexport: bool,
}

/// What a name of a module's scope stands for.
#[derive(Debug)]
pub enum Name {
    /// An item that this module defines.
    Item(ModuleId),
    /// A child.
    Module(ModuleId),
    /// An import of this module, by its index.
    Import(usize),
}

/// A module of a file or of a block.
#[derive(Debug)]
pub struct Module {
    /// Nothing for the root.
    pub parent: Option<ModuleId>,
    /// The file that its items are in.
    pub file: FileId,
    /// Several where configurations differ, or where a module and a function share a name.
    pub names: HashMap<String, Vec<Name>>,
    /// The leaves of its `use` items.
    pub imports: Vec<Import>,
    /// The other paths in its items.
    pub uses: Vec<Written>,
}

/// The modules of a target; the first is the root.
#[derive(Debug, Default)]
pub struct Tree {
    /// Parents before their children.
    pub modules: Vec<Module>,
    /// Paths, relative to the package.
    pub files: Vec<String>,
    /// Where `macro_rules!` of a name stand. Such a macro needs no path in what follows it.
    pub macros: HashMap<String, Vec<ModuleId>>,
}

impl Tree {
    /// Adds an empty module.
    pub fn add(&mut self, parent: Option<ModuleId>, file: FileId) -> ModuleId {
        let (names, imports, uses) = (HashMap::new(), Vec::new(), Vec::new());
        self.modules.push(Module { parent, file, names, imports, uses });
        self.modules.len() - 1
    }

    /// The index of a file, which is added where it is new.
    pub fn file(&mut self, path: &str) -> FileId {
        self.files.iter().position(|known| known == path).unwrap_or_else(|| {
            self.files.push(path.to_string());
            self.files.len() - 1
        })
    }

    /// Gives a module's scope another name.
    pub fn name(&mut self, module: ModuleId, name: String, meaning: Name) {
        self.modules[module].names.entry(name).or_default().push(meaning);
    }

    /// Whether a module lies within another one, at any depth, and is not the same.
    pub fn is_descendant(&self, module: ModuleId, of: ModuleId) -> bool {
        let mut at = self.modules[module].parent;
        while let Some(id) = at {
            if id == of {
                return true;
            }
            at = self.modules[id].parent;
        }
        false
    }
}
