//! From written paths to arrows between files.

use std::collections::BTreeMap;

use crate::module::{FileId, Import, ModuleId, Name, Tree, Written};

/// One place that ties a file to another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tie {
    /// The path as it is written.
    pub path: String,
    /// Where, counted from 1.
    pub line: usize,
}

/// From a file to a file, with the first place that ties the two.
pub type Arrows = BTreeMap<(String, String), Tie>;

/// The arrows of a target, added to those that are there.
pub fn arrows(tree: &Tree, into: &mut Arrows) {
    for (module, declared) in tree.modules.iter().enumerate() {
        let mut found = Found { tree, from: declared.file, arrows: into };
        for (index, import) in declared.imports.iter().enumerate() {
            found.imported(module, index, import);
        }
        for path in &declared.uses {
            found.used(module, path);
        }
    }
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    thing: Thing,
    /// Modules that re-export what lies elsewhere, on the way.
    through: Vec<ModuleId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    Module(ModuleId),
    /// An item of this module.
    Item(ModuleId),
}

impl Thing {
    fn module(self) -> ModuleId {
        match self {
            Thing::Module(id) | Thing::Item(id) => id,
        }
    }
}

/// Imports that are being followed: a chain that comes back to one of them ends there.
type Trail = Vec<(ModuleId, usize)>;

struct Found<'a> {
    tree: &'a Tree,
    from: FileId,
    arrows: &'a mut Arrows,
}

impl Found<'_> {
    fn used(&mut self, module: ModuleId, path: &Written) {
        let places = resolve(self.tree, module, path, &mut Vec::new());
        if places.is_empty() && path.is_macro_call {
            return self.textual_macro(path);
        }
        for place in places {
            self.hops(&place, path);
            // One name that is a module's may be a variable's, too, or a field's.
            match place.thing {
                Thing::Item(id) => self.arrow(id, path),
                Thing::Module(id) if path.segments.len() > 1 => self.arrow(id, path),
                Thing::Module(_) => {}
            }
        }
    }

    /// A macro that is in scope because its definition comes earlier in the text.
    fn textual_macro(&mut self, path: &Written) {
        let [name] = path.segments.as_slice() else { return };
        let defined = self.tree.macros.get(name).map_or(&[][..], Vec::as_slice);
        if defined.iter().any(|id| self.tree.modules[*id].file == self.from) {
            return;
        }
        for id in defined {
            self.arrow(*id, path);
        }
    }

    fn imported(&mut self, module: ModuleId, index: usize, import: &Import) {
        if import.is_extern {
            return;
        }
        for place in resolve(self.tree, module, &import.path, &mut vec![(module, index)]) {
            let is_facade = import.is_reexport && self.tree.is_descendant(place.thing.module(), module);
            self.hops(&place, &import.path);
            match place.thing {
                _ if is_facade => {}
                Thing::Item(id) => self.arrow(id, &import.path),
                Thing::Module(id) if import.is_reexport || !self.is_walked_through(module, index, import) => {
                    self.arrow(id, &import.path);
                }
                Thing::Module(_) => {}
            }
        }
    }

    /// Whether paths of the module begin at the imported module, which then lead to what is in it.
    fn is_walked_through(&self, module: ModuleId, index: usize, import: &Import) -> bool {
        let declared = &self.tree.modules[module];
        let is_first = |path: &Written| {
            let Some(first) = path.segments.first() else { return false };
            if import.is_glob {
                return !declared.names.contains_key(first)
                    && !glob(self.tree, module, index, first, &mut Vec::new()).is_empty();
            }
            let meanings = declared.names.get(first).map_or(&[][..], Vec::as_slice);
            path.segments.len() > 1 && meanings.iter().any(|name| matches!(name, Name::Import(at) if *at == index))
        };
        let imports = declared.imports.iter().map(|other| &other.path);
        declared.uses.iter().chain(imports).any(is_first)
    }

    fn hops(&mut self, place: &Place, path: &Written) {
        for id in &place.through {
            self.arrow(*id, path);
        }
    }

    fn arrow(&mut self, to: ModuleId, path: &Written) {
        let to = self.tree.modules[to].file;
        if to == self.from {
            return;
        }
        let pair = (self.tree.files[self.from].clone(), self.tree.files[to].clone());
        let tie = Tie { path: path.text(), line: path.line };
        self.arrows.entry(pair).or_insert(tie);
    }
}

/// Everything of this package that the path may mean; nothing for another package's names.
fn resolve(tree: &Tree, start: ModuleId, path: &Written, trail: &mut Trail) -> Vec<Place> {
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
    let here = Place { thing: Thing::Module(at), through: Vec::new() };
    if is_anchored {
        return segments.iter().fold(vec![here], |places, name| step(tree, &places, name, trail));
    }
    let Some((first, rest)) = segments.split_first() else { return Vec::new() };
    let places = lookup(tree, at, first, trail);
    rest.iter().fold(places, |places, name| step(tree, &places, name, trail))
}

/// One name further. An item's own names (a variant, an associated function) are where the item is;
/// a name that the module does not have is one that a macro makes in it.
fn step(tree: &Tree, places: &[Place], name: &str, trail: &mut Trail) -> Vec<Place> {
    let mut next = Vec::new();
    // Beside a module of the name there may be a function, which has no names of its own.
    let has_module = places.iter().any(|place| matches!(place.thing, Thing::Module(_)));
    for place in places {
        let Thing::Module(id) = place.thing else {
            next.extend((!has_module).then(|| place.clone()));
            continue;
        };
        let mut below = lookup(tree, id, name, trail);
        if below.is_empty() {
            below.push(Place { thing: Thing::Item(id), through: Vec::new() });
        }
        for mut found in below {
            found.through.splice(0..0, place.through.iter().copied());
            next.push(found);
        }
    }
    next
}

/// What a name stands for in a module's scope.
fn lookup(tree: &Tree, module: ModuleId, name: &str, trail: &mut Trail) -> Vec<Place> {
    let declared = &tree.modules[module];
    let mut places = Vec::new();
    for meaning in declared.names.get(name).map_or(&[][..], Vec::as_slice) {
        match meaning {
            Name::Item(id) => places.push(Place { thing: Thing::Item(*id), through: Vec::new() }),
            Name::Module(id) => places.push(Place { thing: Thing::Module(*id), through: Vec::new() }),
            Name::Import(index) => places.extend(follow(tree, module, *index, None, trail)),
        }
    }
    if !declared.names.contains_key(name) {
        for index in 0..declared.imports.len() {
            if declared.imports[index].is_glob {
                places.extend(glob(tree, module, index, name, trail));
            }
        }
    }
    places
}

/// What a glob import gives a name.
fn glob(tree: &Tree, module: ModuleId, index: usize, name: &str, trail: &mut Trail) -> Vec<Place> {
    follow(tree, module, index, Some(name), trail)
}

/// What an import leads to; of a glob, the name in the module that it opens.
fn follow(tree: &Tree, module: ModuleId, index: usize, name: Option<&str>, trail: &mut Trail) -> Vec<Place> {
    let import = &tree.modules[module].imports[index];
    if import.is_extern || trail.contains(&(module, index)) {
        return Vec::new();
    }
    trail.push((module, index));
    let mut places = resolve(tree, module, &import.path, trail);
    if let Some(name) = name {
        let opened = std::mem::take(&mut places);
        for place in opened {
            let Thing::Module(id) = place.thing else { continue };
            for mut found in lookup(tree, id, name, trail) {
                found.through.splice(0..0, place.through.iter().copied());
                places.push(found);
            }
        }
    }
    trail.pop();
    for place in &mut places {
        if !tree.is_descendant(place.thing.module(), module) {
            place.through.push(module);
        }
    }
    places
}
