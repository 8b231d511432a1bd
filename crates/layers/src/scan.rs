//! Finds paths in token streams: macro bodies and attributes have no other structure.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::module::SourcePath;

/// Every path in the tokens. With `strings`, a string literal that holds a path counts too, for
/// example that of `#[serde(with = "crate::seconds")]`.
pub fn paths(tokens: TokenStream, strings: bool) -> Vec<SourcePath> {
    let mut found = Vec::new();
    scan(tokens, strings, &mut found);
    found
}

fn scan(tokens: TokenStream, strings: bool, found: &mut Vec<SourcePath>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) if is_module(&tokens, at) => {
                found.extend(in_module(group.stream()))
            }
            TokenTree::Group(group) => scan(group.stream(), strings, found),
            TokenTree::Literal(literal) if strings => {
                found.extend(in_string(&literal.to_string(), literal.span().start().line));
            }
            TokenTree::Ident(_) => {
                let (path, end) = path_at(&tokens, at);
                let is_start = starts_path(&tokens, at);
                at = end;
                match group_at(&tokens, end) {
                    Some(group) if is_start => {
                        found.extend(leaves(&path, group));
                        at += 3;
                    }
                    _ if is_start => found.push(path),
                    _ => {}
                }
                continue;
            }
            _ => {}
        }
        at += 1;
    }
}

/// Whether the name at `at` starts a path of this package. Fields and methods (`x.name`), the rest
/// of a path that starts elsewhere (`::std`, `<T>::name`), macro variables (`$name`) and lifetimes
/// do not.
fn starts_path(tokens: &[TokenTree], at: usize) -> bool {
    let before = |back: usize| match at.checked_sub(back).map(|index| &tokens[index]) {
        Some(TokenTree::Punct(punct)) => Some(punct.as_char()),
        _ => None,
    };
    match before(1) {
        Some('.') => before(2) == Some('.'),
        Some(':') => before(2) != Some(':'),
        Some('$') => matches!(&tokens[at], TokenTree::Ident(ident) if ident == "crate"),
        Some('\'') => false,
        _ => true,
    }
}

/// The path that starts at `at`, and the index after it.
fn path_at(tokens: &[TokenTree], mut at: usize) -> (SourcePath, usize) {
    let mut path = SourcePath { segments: Vec::new(), line: 0, is_macro_call: false };
    while let Some(TokenTree::Ident(ident)) = tokens.get(at) {
        if path.segments.is_empty() {
            path.line = ident.span().start().line;
        }
        path.segments.push(plain(&ident.to_string()));
        at += 1;
        if !is_colons(tokens, at) || !matches!(tokens.get(at + 2), Some(TokenTree::Ident(_))) {
            break;
        }
        at += 2;
    }
    let is_group = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Group(_)));
    path.is_macro_call = is_punct(tokens.get(at), '!') && is_group(tokens.get(at + 1));
    (path, at)
}

/// Whether the group at `at` is the body of `mod name { ... }`.
fn is_module(tokens: &[TokenTree], at: usize) -> bool {
    let before = at.checked_sub(2).map(|index| &tokens[index..at]);
    matches!(before, Some([TokenTree::Ident(word), TokenTree::Ident(_)]) if word == "mod")
}

/// The paths of a nested module, relative to the module around it.
fn in_module(tokens: TokenStream) -> Vec<SourcePath> {
    let mut found = paths(tokens, false);
    found.retain_mut(|path| match path.segments[0].as_str() {
        "super" => {
            path.segments.remove(0);
            !path.segments.is_empty()
        }
        first => first == "crate",
    });
    found
}

/// The group of `path::{a, b::c}`; `end` is the index after the path.
fn group_at(tokens: &[TokenTree], end: usize) -> Option<TokenStream> {
    match tokens.get(end + 2) {
        Some(TokenTree::Group(group))
            if is_colons(tokens, end) && group.delimiter() == Delimiter::Brace =>
        {
            Some(group.stream())
        }
        _ => None,
    }
}

/// The paths in the group that follows a path.
fn leaves(path: &SourcePath, group: TokenStream) -> Vec<SourcePath> {
    let mut below = paths(group, false);
    for leaf in &mut below {
        if leaf.segments == ["self"] {
            leaf.segments.clear();
        }
        leaf.segments.splice(0..0, path.segments.iter().cloned());
    }
    below
}

fn is_punct(token: Option<&TokenTree>, char: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == char)
}

fn is_colons(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')
}

/// A string that consists of a path of at least two segments.
fn in_string(literal: &str, line: usize) -> Option<SourcePath> {
    let inner = literal.strip_prefix('"')?.strip_suffix('"')?;
    let segments: Vec<String> = inner.split("::").map(str::to_string).collect();
    let is_name =
        |text: &String| syn::parse_str::<proc_macro2::Ident>(text).is_ok() || is_keyword(text);
    let is_reachable = segments.len() > 1 && segments.iter().all(is_name);
    is_reachable.then_some(SourcePath { segments, line, is_macro_call: false })
}

fn is_keyword(text: &str) -> bool {
    matches!(text, "crate" | "self" | "super" | "Self")
}

/// Removes the prefix `r#` of a name.
pub fn plain(name: &str) -> String {
    name.strip_prefix("r#").unwrap_or(name).to_string()
}
