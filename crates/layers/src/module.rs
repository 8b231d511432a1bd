//! The modules of one compilation target, and the paths that each module names.

use std::collections::HashMap;

/// A module's index in [`Tree::modules`].
pub type ModuleId = usize;

/// The index of a file in [`Tree::files`].
pub type FileId = usize;

/// A path as written in the source, with `$crate` as `crate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePath {
    /// `["super", "queue", "Node"]`
    pub segments: Vec<String>,
    /// Line number, counted from 1.
    pub line: usize,
    /// Whether the path names a called macro, which may be in scope without an import.
    pub is_macro_call: bool,
}

impl SourcePath {
    /// The path as in the source.
    pub fn text(&self) -> String {
        self.segments.join("::")
    }
}

/// One leaf of a `use` item.
#[derive(Debug)]
pub struct Import {
    /// The imported path; for a glob, the part before `::*`.
    pub path: SourcePath,
    /// Whether the path begins with `::` and so names another package.
    pub is_extern: bool,
    /// `*`
    pub is_glob: bool,
    /// Whether other modules may import the name from here (`pub`, `pub(crate)`, ...).
    pub is_reexport: bool,
}

/// The meaning of a name in a module's scope.
#[derive(Debug)]
pub enum Name {
    /// An item defined in this module.
    Item(ModuleId),
    /// A child module.
    Module(ModuleId),
    /// An import of this module, by its index.
    Import(usize),
}

/// A module of a file or of a block.
#[derive(Debug)]
pub struct Module {
    /// `None` for the root.
    pub parent: Option<ModuleId>,
    /// The file that contains the module's items.
    pub file: FileId,
    /// Meanings by name. A name has several if configurations differ, or if a module and a function
    /// share it.
    pub names: HashMap<String, Vec<Name>>,
    /// The leaves of the module's `use` items.
    pub imports: Vec<Import>,
    /// The other paths in the module's items.
    pub uses: Vec<SourcePath>,
}

/// The modules of a target. The first is the root.
#[derive(Debug, Default)]
pub struct Tree {
    /// Parents precede their children.
    pub modules: Vec<Module>,
    /// Paths relative to the package.
    pub files: Vec<String>,
    /// Modules with a `macro_rules!` of each name. Later text can use such a macro without a path.
    pub macros: HashMap<String, Vec<ModuleId>>,
}

impl Tree {
    /// Adds an empty module.
    pub fn add(&mut self, parent: Option<ModuleId>, file: FileId) -> ModuleId {
        let (names, imports, uses) = (HashMap::new(), Vec::new(), Vec::new());
        self.modules.push(Module { parent, file, names, imports, uses });
        self.modules.len() - 1
    }

    /// Returns the index of a file, which is added if it is new.
    pub fn file(&mut self, path: &str) -> FileId {
        self.files.iter().position(|known| known == path).unwrap_or_else(|| {
            self.files.push(path.to_string());
            self.files.len() - 1
        })
    }

    /// Adds a meaning to a name in a module's scope.
    pub fn name(&mut self, module: ModuleId, name: String, meaning: Name) {
        self.modules[module].names.entry(name).or_default().push(meaning);
    }

    /// Whether `module` is a proper descendant of `of`.
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
