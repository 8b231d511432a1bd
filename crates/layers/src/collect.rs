//! The contents of one file: its names, imports, paths and child modules, block by block.

use proc_macro2::{Ident, TokenStream};
use syn::visit::{self, Visit};
use syn::{Attribute, ForeignItem, Item, ItemMod, ItemUse, Meta, UseTree, Visibility};

use crate::module::{Import, ModuleId, Name, SourcePath, Tree};
use crate::scan;

/// Adds a module's items to the tree. Calls `child` for every `mod` item, with the new child
/// module.
pub fn items(
    tree: &mut Tree,
    module: ModuleId,
    items: &[Item],
    child: &mut dyn FnMut(&mut Tree, ModuleId, &ItemMod),
) {
    for item in items {
        let attributes = attributes(item);
        if !is_shipped(attributes) {
            continue;
        }
        match item {
            Item::Mod(declared) => {
                let file = tree.modules[module].file;
                let id = tree.add(Some(module), file);
                tree.name(module, scan::plain(&declared.ident.to_string()), Name::Module(id));
                child(tree, id, declared);
            }
            Item::Macro(rules) if rules.mac.path.is_ident("macro_rules") => {
                macro_rules(tree, module, rules)
            }
            other => {
                for name in defined(other) {
                    tree.name(module, scan::plain(&name.to_string()), Name::Item(module));
                }
                Collector { tree, module }.visit_item(other);
            }
        }
    }
}

fn macro_rules(tree: &mut Tree, module: ModuleId, rules: &syn::ItemMacro) {
    let Some(name) = rules.ident.as_ref().map(Ident::to_string) else { return };
    tree.macros.entry(name.clone()).or_default().push(module);
    tree.name(module, name.clone(), Name::Item(module));
    if module != 0 && rules.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export"))
    {
        tree.name(0, name, Name::Item(module));
    }
    tree.modules[module].uses.extend(scan::paths(rules.mac.tokens.clone(), false));
}

/// The names that an item adds to its module, other than imports.
fn defined(item: &Item) -> Vec<&Ident> {
    match item {
        Item::Const(item) => vec![&item.ident],
        Item::Enum(item) => vec![&item.ident],
        Item::Fn(item) => vec![&item.sig.ident],
        Item::Static(item) => vec![&item.ident],
        Item::Struct(item) => vec![&item.ident],
        Item::Trait(item) => vec![&item.ident],
        Item::TraitAlias(item) => vec![&item.ident],
        Item::Type(item) => vec![&item.ident],
        Item::Union(item) => vec![&item.ident],
        Item::ForeignMod(block) => block.items.iter().filter_map(foreign).collect(),
        _ => Vec::new(),
    }
}

fn foreign(item: &ForeignItem) -> Option<&Ident> {
    match item {
        ForeignItem::Fn(item) => Some(&item.sig.ident),
        ForeignItem::Static(item) => Some(&item.ident),
        ForeignItem::Type(item) => Some(&item.ident),
        _ => None,
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether the attributes admit the item to a non-test build.
pub fn is_shipped(attributes: &[Attribute]) -> bool {
    !attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args().is_ok_and(|condition| holds(&condition) == Some(false))
        }
        _ => false,
    })
}

/// The value of a condition with `test` false and every other option unknown.
fn holds(condition: &Meta) -> Option<bool> {
    let Meta::List(list) = condition else {
        return condition.path().is_ident("test").then_some(false);
    };
    let parts = syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated;
    let parts: Vec<Option<bool>> = list.parse_args_with(parts).ok()?.iter().map(holds).collect();
    let decided = |value: bool| {
        let all = parts.iter().all(|part| *part == Some(!value)).then_some(!value);
        parts.contains(&Some(value)).then_some(value).or(all)
    };
    match list.path.get_ident()?.to_string().as_str() {
        "not" => parts.first().copied().flatten().map(|value| !value),
        "all" => decided(false),
        "any" => decided(true),
        _ => None,
    }
}

/// Collects the paths within an item.
struct Collector<'a> {
    tree: &'a mut Tree,
    module: ModuleId,
}

impl Collector<'_> {
    fn record(&mut self, segments: Vec<String>, line: usize, is_macro_call: bool) {
        self.tree.modules[self.module].uses.push(SourcePath { segments, line, is_macro_call });
    }

    fn record_tokens(&mut self, tokens: TokenStream, strings: bool) {
        self.tree.modules[self.module].uses.extend(scan::paths(tokens, strings));
    }

    fn import(&mut self, tree: &UseTree, prefix: &[&Ident], item: &ItemUse) {
        match tree {
            UseTree::Path(path) => {
                self.import(&path.tree, &[prefix, &[&path.ident]].concat(), item)
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, prefix, item))
            }
            UseTree::Name(name) if name.ident == "self" => {
                let Some(last) = prefix.last() else { return };
                self.leaf(prefix, Some(last), item);
            }
            UseTree::Name(name) => {
                self.leaf(&[prefix, &[&name.ident]].concat(), Some(&name.ident), item)
            }
            UseTree::Rename(name) if name.ident == "self" => {
                self.leaf(prefix, Some(&name.rename), item)
            }
            UseTree::Rename(name) => {
                self.leaf(&[prefix, &[&name.ident]].concat(), Some(&name.rename), item)
            }
            UseTree::Glob(_) => self.leaf(prefix, None, item),
        }
    }

    fn leaf(&mut self, path: &[&Ident], name: Option<&Ident>, item: &ItemUse) {
        let segments = path.iter().map(|ident| scan::plain(&ident.to_string())).collect();
        let line = path.last().map_or(0, |ident| ident.span().start().line);
        let import = Import {
            path: SourcePath { segments, line, is_macro_call: false },
            is_extern: item.leading_colon.is_some(),
            is_glob: name.is_none(),
            is_reexport: !matches!(item.vis, Visibility::Inherited),
        };
        let imports = &mut self.tree.modules[self.module].imports;
        imports.push(import);
        let index = imports.len() - 1;
        if let Some(name) = name.filter(|name| *name != "_") {
            self.tree.name(self.module, scan::plain(&name.to_string()), Name::Import(index));
        }
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_shipped(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if is_shipped(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if is_shipped(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if is_shipped(&local.attrs) {
            visit::visit_local(self, local);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.import(&item.tree, &[], item);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let segments = path
                .segments
                .iter()
                .map(|segment| scan::plain(&segment.ident.to_string()))
                .collect();
            let line = path.segments.first().map_or(0, |segment| segment.ident.span().start().line);
            self.record(segments, line, false);
        }
        visit::visit_path(self, path);
    }

    /// `pub(in path)` names an ancestor and imports nothing.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        if call.path.leading_colon.is_none() {
            let segments = call
                .path
                .segments
                .iter()
                .map(|segment| scan::plain(&segment.ident.to_string()))
                .collect();
            let line =
                call.path.segments.first().map_or(0, |segment| segment.ident.span().start().line);
            self.record(segments, line, true);
        }
        self.record_tokens(call.tokens.clone(), false);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        const NO_PATHS: [&str; 9] =
            ["doc", "cfg", "allow", "expect", "warn", "deny", "path", "inline", "repr"];
        if NO_PATHS.iter().any(|name| attribute.path().is_ident(name)) {
            return;
        }
        match &attribute.meta {
            Meta::Path(_) => {}
            Meta::List(list) => self.record_tokens(list.tokens.clone(), true),
            Meta::NameValue(pair) => self.visit_expr(&pair.value),
        }
    }
}
