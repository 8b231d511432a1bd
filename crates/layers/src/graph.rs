//! Circles of a graph of files, and few arrows whose removal leaves none.

use std::collections::{BTreeMap, BTreeSet};

/// From a file to a file.
pub type Arrow = (String, String);

/// The files that each file has an arrow to.
type Next<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

fn next<'a>(arrows: impl IntoIterator<Item = &'a Arrow>) -> Next<'a> {
    let mut next = Next::new();
    for (from, to) in arrows {
        next.entry(from).or_default().insert(to);
        next.entry(to).or_default();
    }
    next
}

/// The files of each circle: files that reach one another.
pub fn circles<'a>(arrows: impl IntoIterator<Item = &'a Arrow>) -> Vec<BTreeSet<String>> {
    let next = next(arrows);
    let mut search = Search { next: &next, order: BTreeMap::new(), stack: Vec::new(), done: BTreeSet::new() };
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
    /// When a file was first met, and the earliest file of the stack that it reaches.
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
            let at = self.stack.iter().position(|other| *other == file).expect("it was pushed above");
            let part: Vec<&str> = self.stack.drain(at..).collect();
            self.done.extend(&part);
            if part.len() > 1 {
                found.push(part.into_iter().map(str::to_string).collect());
            }
        }
        low
    }
}

/// Whether arrows lead from a file to another one.
pub fn is_path(arrows: &BTreeSet<Arrow>, from: &str, to: &str) -> bool {
    let next = next(arrows);
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

/// Few arrows whose removal leaves no circle: none of them can stay.
///
/// Eades, Lin and Smyth, A fast and effective heuristic for the feedback arc set problem, Information
/// Processing Letters 47(6), 1993, orders the files; the arrows that run back in this order are
/// then given back one by one, as long as they close no circle.
pub fn closing(arrows: &BTreeSet<Arrow>) -> BTreeSet<Arrow> {
    let position: BTreeMap<String, usize> = ordered(arrows).into_iter().zip(0..).collect();
    let runs_back = |arrow: &&Arrow| position[&arrow.0] > position[&arrow.1];
    let mut left: BTreeSet<Arrow> = arrows.iter().filter(|arrow| !runs_back(arrow)).cloned().collect();
    let mut closing = BTreeSet::new();
    for arrow in arrows.iter().filter(runs_back) {
        if is_path(&left, &arrow.1, &arrow.0) {
            closing.insert(arrow.clone());
        } else {
            left.insert(arrow.clone());
        }
    }
    closing
}

/// The files in an order that few arrows run back in.
fn ordered(arrows: &BTreeSet<Arrow>) -> Vec<String> {
    let mut left: BTreeSet<&Arrow> = arrows.iter().collect();
    let mut files: BTreeSet<&str> = next(arrows).into_keys().collect();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    while !files.is_empty() {
        let degree = |file: &str| {
            let out = left.iter().filter(|arrow| arrow.0 == file).count();
            let into = left.iter().filter(|arrow| arrow.1 == file).count();
            (out, into)
        };
        let sink = files.iter().copied().find(|file| degree(file).0 == 0);
        let source = files.iter().copied().find(|file| degree(file).1 == 0);
        let surplus = |file: &&&str| degree(file).0 as isize - degree(file).1 as isize;
        let most = files.iter().rev().max_by_key(surplus).copied();
        let file = sink.or(source).or(most).expect("files are left");
        if sink.is_some() { &mut last } else { &mut first }.push(file.to_string());
        files.remove(file);
        left.retain(|arrow| arrow.0 != file && arrow.1 != file);
    }
    first.extend(last.into_iter().rev());
    first
}
