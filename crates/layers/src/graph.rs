//! Cycles of a graph of files, and a small set of edges whose removal breaks them.

use std::collections::{BTreeMap, BTreeSet};

/// From a file to a file.
pub type Edge = (String, String);

/// The successors of each file.
type Next<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

fn next<'a>(edges: impl IntoIterator<Item = &'a Edge>) -> Next<'a> {
    let mut next = Next::new();
    for (from, to) in edges {
        next.entry(from).or_default().insert(to);
        next.entry(to).or_default();
    }
    next
}

/// The files of each cycle, i.e. of each strongly connected component with several files.
pub fn cycles<'a>(edges: impl IntoIterator<Item = &'a Edge>) -> Vec<BTreeSet<String>> {
    let next = next(edges);
    let mut search =
        Search { next: &next, order: BTreeMap::new(), stack: Vec::new(), done: BTreeSet::new() };
    let mut found = Vec::new();
    for file in next.keys() {
        search.visit(file, &mut found);
    }
    found.sort();
    found
}

/// Tarjan, Depth-first search and linear graph algorithms, SIAM Journal on Computing 1(2), 1972.
struct Search<'a> {
    next: &'a Next<'a>,
    /// For each visited file, its number in order of discovery, and the lowest number on the stack
    /// that it reaches.
    order: BTreeMap<&'a str, (usize, usize)>,
    stack: Vec<&'a str>,
    done: BTreeSet<&'a str>,
}

impl<'a> Search<'a> {
    fn visit(&mut self, file: &'a str, found: &mut Vec<BTreeSet<String>>) -> usize {
        if let Some((_, low)) = self.order.get(file) {
            return *low;
        }
        let index = self.order.len();
        self.order.insert(file, (index, index));
        self.stack.push(file);
        let mut low = index;
        for to in &self.next[file] {
            match self.order.get(to) {
                Some((met, _)) if !self.done.contains(to) => low = low.min(*met),
                Some(_) => {}
                None => low = low.min(self.visit(to, found)),
            }
        }
        self.order.insert(file, (index, low));
        if low == index {
            let at =
                self.stack.iter().position(|other| *other == file).expect("it was pushed above");
            let part: Vec<&str> = self.stack.drain(at..).collect();
            self.done.extend(&part);
            if part.len() > 1 {
                found.push(part.into_iter().map(str::to_string).collect());
            }
        }
        low
    }
}

/// Whether `to` is reachable from `from`.
pub fn is_reachable(edges: &BTreeSet<Edge>, from: &str, to: &str) -> bool {
    let next = next(edges);
    let (mut met, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(file) = left.pop() {
        if file == to {
            return true;
        }
        if met.insert(file) {
            left.extend(next.get(file).into_iter().flatten());
        }
    }
    false
}

/// A small set of edges whose removal breaks every cycle. Each of them is necessary: restoring any
/// one closes a cycle.
///
/// The files are ordered after Eades, Lin and Smyth, A fast and effective heuristic for the
/// feedback arc set problem, Information Processing Letters 47(6), 1993. Edges that run backwards
/// in this order are then restored one by one, unless they close a cycle.
pub fn feedback_edges(edges: &BTreeSet<Edge>) -> BTreeSet<Edge> {
    let position: BTreeMap<String, usize> = ordered(edges).into_iter().zip(0..).collect();
    let runs_back = |edge: &&Edge| position[&edge.0] > position[&edge.1];
    let mut left: BTreeSet<Edge> = edges.iter().filter(|edge| !runs_back(edge)).cloned().collect();
    let mut feedback_edges = BTreeSet::new();
    for edge in edges.iter().filter(runs_back) {
        if is_reachable(&left, &edge.1, &edge.0) {
            feedback_edges.insert(edge.clone());
        } else {
            left.insert(edge.clone());
        }
    }
    feedback_edges
}

/// An order of the files with few backward edges.
fn ordered(edges: &BTreeSet<Edge>) -> Vec<String> {
    let mut left: BTreeSet<&Edge> = edges.iter().collect();
    let mut files: BTreeSet<&str> = next(edges).into_keys().collect();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    while !files.is_empty() {
        let degree = |file: &str| {
            let out = left.iter().filter(|edge| edge.0 == file).count();
            let into = left.iter().filter(|edge| edge.1 == file).count();
            (out, into)
        };
        let sink = files.iter().copied().find(|file| degree(file).0 == 0);
        let source = files.iter().copied().find(|file| degree(file).1 == 0);
        let surplus = |file: &&&str| degree(file).0 as isize - degree(file).1 as isize;
        let most = files.iter().rev().max_by_key(surplus).copied();
        let file = sink.or(source).or(most).expect("files are left");
        if sink.is_some() { &mut last } else { &mut first }.push(file.to_string());
        files.remove(file);
        left.retain(|edge| edge.0 != file && edge.1 != file);
    }
    first.extend(last.into_iter().rev());
    first
}
