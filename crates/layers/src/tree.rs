//! Reads a target's module tree, starting at its root file.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use syn::{Attribute, Expr, ExprLit, ItemMod, Lit, Meta};

use crate::collect;
use crate::messages;
use crate::module::{ModuleId, Tree};
use crate::source::{Sources, normalized};

/// Reads the modules of the target with root file `root`.
///
/// # Errors
///
/// A file does not parse, or a declared module has no file.
pub fn read(sources: &dyn Sources, root: &str) -> Result<Tree> {
    let mut reader = Reader { sources, errors: Vec::new() };
    let mut tree = Tree::default();
    let file = tree.file(root);
    let id = tree.add(None, file);
    let folder = Path::new(root).parent().unwrap_or(Path::new("")).to_path_buf();
    reader.file(&mut tree, id, Path::new(root), Folders { beside: folder.clone(), below: folder });
    match reader.errors.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(tree),
    }
}

/// Folders with the files of a module's children.
#[derive(Clone)]
struct Folders {
    /// Base of `#[path]`.
    beside: PathBuf,
    /// Folder of `x.rs` or `x/mod.rs`.
    below: PathBuf,
}

struct Reader<'a> {
    sources: &'a dyn Sources,
    errors: Vec<anyhow::Error>,
}

impl Reader<'_> {
    fn file(&mut self, tree: &mut Tree, module: ModuleId, path: &Path, folders: Folders) {
        let parsed = match self.sources.read(path) {
            Some(text) => syn::parse_file(&text)
                .with_context(|| messages::syntax_error(&path.to_string_lossy())),
            None => Err(anyhow::anyhow!(messages::missing_file(&path.to_string_lossy()))),
        };
        match parsed {
            Ok(parsed) => self.items(tree, module, &parsed.items, &folders),
            Err(error) => self.errors.push(error),
        }
    }

    fn items(&mut self, tree: &mut Tree, module: ModuleId, items: &[syn::Item], folders: &Folders) {
        collect::items(tree, module, items, &mut |tree, child, declared| {
            if let Err(error) = self.child(tree, child, declared, folders) {
                self.errors.push(error);
            }
        });
    }

    fn child(
        &mut self,
        tree: &mut Tree,
        child: ModuleId,
        declared: &ItemMod,
        folders: &Folders,
    ) -> Result<()> {
        let name = crate::scan::plain(&declared.ident.to_string());
        if let Some((_, items)) = &declared.content {
            let below = folders.below.join(&name);
            self.items(tree, child, items, &Folders { beside: below.clone(), below });
            return Ok(());
        }
        let (path, below) = match path_attribute(&declared.attrs) {
            Some(path) => {
                let path = normalized(&folders.beside.join(path));
                let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
                (path, folder)
            }
            None => self.default_file(&folders.below, &name)?,
        };
        let beside = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let text =
            path.to_str().with_context(|| messages::path_not_utf8(&path.to_string_lossy()))?;
        if is_ancestor(tree, child, text) {
            bail!(messages::self_declaring_module(text));
        }
        tree.modules[child].file = tree.file(text);
        self.file(tree, child, &path, Folders { beside, below });
        Ok(())
    }

    /// Finds `x.rs`, with children in `x/`, or `x/mod.rs`.
    fn default_file(&self, folder: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
        let below = folder.join(name);
        for path in [folder.join(format!("{name}.rs")), below.join("mod.rs")] {
            if self.sources.read(&path).is_some() {
                return Ok((path, below));
            }
        }
        bail!(messages::module_without_file(name, &folder.to_string_lossy()))
    }
}

fn is_ancestor(tree: &Tree, module: ModuleId, path: &str) -> bool {
    std::iter::successors(tree.modules[module].parent, |id| tree.modules[*id].parent)
        .any(|id| tree.files[tree.modules[id].file] == path)
}

/// The value of `#[path = "..."]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}
