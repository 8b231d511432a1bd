//! Resolves written paths to edges between files.

use std::collections::BTreeMap;

use crate::module::{FileId, Import, ModuleId, Name, SourcePath, Tree};

/// A place in the source where one file uses another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The path as written.
    pub path: String,
    /// Line number, counted from 1.
    pub line: usize,
}

/// Edges between files, each with its first site.
pub type Edges = BTreeMap<(String, String), Site>;

/// Adds the edges of a compilation target to `into`.
pub fn edges(tree: &Tree, into: &mut Edges) {
    for (module, declared) in tree.modules.iter().enumerate() {
        let mut found = Found { tree, from: declared.file, edges: into };
        for (index, import) in declared.imports.iter().enumerate() {
            found.imported(module, index, import);
        }
        for path in &declared.uses {
            found.used(module, path);
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Resolved {
    referent: Referent,
    /// Modules on the way that re-export a name from elsewhere.
    through: Vec<ModuleId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Referent {
    Module(ModuleId),
    /// An item of this module.
    Item(ModuleId),
}

impl Referent {
    fn module(self) -> ModuleId {
        match self {
            Referent::Module(id) | Referent::Item(id) => id,
        }
    }
}

/// Imports being followed. A chain that returns to one of them ends there.
type Trail = Vec<(ModuleId, usize)>;

struct Found<'a> {
    tree: &'a Tree,
    from: FileId,
    edges: &'a mut Edges,
}

impl Found<'_> {
    fn used(&mut self, module: ModuleId, path: &SourcePath) {
        let candidates = resolve(self.tree, module, path, &mut Vec::new());
        if candidates.is_empty() && path.is_macro_call {
            return self.macro_in_scope(path);
        }
        for candidate in candidates {
            self.reexports(&candidate, path);
            // A single name that matches a module may also be a variable or a field.
            match candidate.referent {
                Referent::Item(id) => self.edge(id, path),
                Referent::Module(id) if path.segments.len() > 1 => self.edge(id, path),
                Referent::Module(_) => {}
            }
        }
    }

    /// A macro in scope because its definition precedes it in the text.
    fn macro_in_scope(&mut self, path: &SourcePath) {
        let [name] = path.segments.as_slice() else { return };
        let defined = self.tree.macros.get(name).map_or(&[][..], Vec::as_slice);
        if defined.iter().any(|id| self.tree.modules[*id].file == self.from) {
            return;
        }
        for id in defined {
            self.edge(*id, path);
        }
    }

    fn imported(&mut self, module: ModuleId, index: usize, import: &Import) {
        if import.is_extern {
            return;
        }
        for candidate in resolve(self.tree, module, &import.path, &mut vec![(module, index)]) {
            let is_facade =
                import.is_reexport && self.tree.is_descendant(candidate.referent.module(), module);
            self.reexports(&candidate, &import.path);
            match candidate.referent {
                _ if is_facade => {}
                Referent::Item(id) => self.edge(id, &import.path),
                Referent::Module(id)
                    if import.is_reexport || !self.is_path_prefix(module, index, import) =>
                {
                    self.edge(id, &import.path);
                }
                Referent::Module(_) => {}
            }
        }
    }

    /// Whether other paths of the module start at the imported module. Those paths then yield the
    /// edges.
    fn is_path_prefix(&self, module: ModuleId, index: usize, import: &Import) -> bool {
        let declared = &self.tree.modules[module];
        let is_first = |path: &SourcePath| {
            let Some(first) = path.segments.first() else { return false };
            if import.is_glob {
                return !declared.names.contains_key(first)
                    && !glob(self.tree, module, index, first, &mut Vec::new()).is_empty();
            }
            let meanings = declared.names.get(first).map_or(&[][..], Vec::as_slice);
            path.segments.len() > 1
                && meanings.iter().any(|name| matches!(name, Name::Import(at) if *at == index))
        };
        let imports = declared.imports.iter().map(|other| &other.path);
        declared.uses.iter().chain(imports).any(is_first)
    }

    fn reexports(&mut self, candidate: &Resolved, path: &SourcePath) {
        for id in &candidate.through {
            self.edge(*id, path);
        }
    }

    fn edge(&mut self, to: ModuleId, path: &SourcePath) {
        let to = self.tree.modules[to].file;
        if to == self.from {
            return;
        }
        let pair = (self.tree.files[self.from].clone(), self.tree.files[to].clone());
        let site = Site { path: path.text(), line: path.line };
        self.edges.entry(pair).or_insert(site);
    }
}

/// Everything in this package that the path may mean; empty for names of other packages.
fn resolve(tree: &Tree, start: ModuleId, path: &SourcePath, trail: &mut Trail) -> Vec<Resolved> {
    let mut segments = path.segments.as_slice();
    let mut at = start;
    let mut is_anchored = false;
    while let [first, rest @ ..] = segments {
        at = match first.as_str() {
            "crate" => 0,
            "self" => at,
            "super" => match tree.modules[at].parent {
                Some(parent) => parent,
                None => return Vec::new(),
            },
            _ => break,
        };
        is_anchored = true;
        segments = rest;
    }
    let here = Resolved { referent: Referent::Module(at), through: Vec::new() };
    if is_anchored {
        return segments
            .iter()
            .fold(vec![here], |candidates, name| step(tree, &candidates, name, trail));
    }
    let Some((first, rest)) = segments.split_first() else { return Vec::new() };
    let candidates = lookup(tree, at, first, trail);
    rest.iter().fold(candidates, |candidates, name| step(tree, &candidates, name, trail))
}

/// Resolves one more segment. Names inside an item (variants, associated functions) belong to the
/// item's module. A name missing from a module is assumed to be generated there by a macro.
fn step(tree: &Tree, candidates: &[Resolved], name: &str, trail: &mut Trail) -> Vec<Resolved> {
    let mut next = Vec::new();
    // A module may share its name with a function, which has no names inside.
    let has_module =
        candidates.iter().any(|candidate| matches!(candidate.referent, Referent::Module(_)));
    for candidate in candidates {
        let Referent::Module(id) = candidate.referent else {
            next.extend((!has_module).then(|| candidate.clone()));
            continue;
        };
        let mut below = lookup(tree, id, name, trail);
        if below.is_empty() {
            below.push(Resolved { referent: Referent::Item(id), through: Vec::new() });
        }
        for mut found in below {
            found.through.splice(0..0, candidate.through.iter().copied());
            next.push(found);
        }
    }
    next
}

/// The meanings of a name in a module's scope.
fn lookup(tree: &Tree, module: ModuleId, name: &str, trail: &mut Trail) -> Vec<Resolved> {
    let declared = &tree.modules[module];
    let mut candidates = Vec::new();
    for meaning in declared.names.get(name).map_or(&[][..], Vec::as_slice) {
        match meaning {
            Name::Item(id) => {
                candidates.push(Resolved { referent: Referent::Item(*id), through: Vec::new() })
            }
            Name::Module(id) => {
                candidates.push(Resolved { referent: Referent::Module(*id), through: Vec::new() })
            }
            Name::Import(index) => candidates.extend(follow(tree, module, *index, None, trail)),
        }
    }
    if !declared.names.contains_key(name) {
        for index in 0..declared.imports.len() {
            if declared.imports[index].is_glob {
                candidates.extend(glob(tree, module, index, name, trail));
            }
        }
    }
    candidates
}

/// The meanings that a glob import gives to a name.
fn glob(
    tree: &Tree,
    module: ModuleId,
    index: usize,
    name: &str,
    trail: &mut Trail,
) -> Vec<Resolved> {
    follow(tree, module, index, Some(name), trail)
}

/// What an import leads to; for a glob, the meaning of `name` in the imported module.
fn follow(
    tree: &Tree,
    module: ModuleId,
    index: usize,
    name: Option<&str>,
    trail: &mut Trail,
) -> Vec<Resolved> {
    let import = &tree.modules[module].imports[index];
    if import.is_extern || trail.contains(&(module, index)) {
        return Vec::new();
    }
    trail.push((module, index));
    let mut candidates = resolve(tree, module, &import.path, trail);
    if let Some(name) = name {
        let opened = std::mem::take(&mut candidates);
        for candidate in opened {
            let Referent::Module(id) = candidate.referent else { continue };
            for mut found in lookup(tree, id, name, trail) {
                found.through.splice(0..0, candidate.through.iter().copied());
                candidates.push(found);
            }
        }
    }
    trail.pop();
    for candidate in &mut candidates {
        if !tree.is_descendant(candidate.referent.module(), module) {
            candidate.through.push(module);
        }
    }
    candidates
}
