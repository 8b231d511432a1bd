//! Flame graphs (Gregg, "The Flame Graph", CACM 59(6), 2016) as SVG. The locks form a row in the
//! middle, each as wide as the time waited for it. The waiters' stacks rise above this row, and the
//! stacks of the holders that made them wait hang below it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use unconvoy_measure::chart::{in_xml, quantity};

use super::report::Report;
use super::rows::StackSum;

/// Height of a frame in pixels.
const HEIGHT: usize = 18;

/// Frames with a smaller share of the width are left out: on a wide screen they would have less
/// than a pixel.
const NARROWEST: f64 = 0.0005;

/// Zooms into a frame that is clicked, and highlights frames by name.
pub const SCRIPT: &str = include_str!("../../templates/flame.js");

/// The colours, and the style of the text.
pub const STYLE: &str = include_str!("../../templates/flame.css");

/// A function in a tree of calls, and the functions that it called.
#[derive(Default)]
struct Node {
    ns: u64,
    calls: BTreeMap<String, Node>,
}

impl Node {
    fn add(&mut self, frames: &[String], ns: u64) {
        self.ns += ns;
        let mut node = self;
        for frame in frames {
            node = node.calls.entry(frame.clone()).or_default();
            node.ns += ns;
        }
    }

    /// The number of rows below this node that have frames of more than `least` nanoseconds.
    fn depth(&self, least: u64) -> usize {
        let calls = self.calls.values().filter(|call| call.ns > least);
        calls.map(|call| 1 + call.depth(least)).max().unwrap_or(0)
    }
}

/// The graph as an SVG file.
pub fn file(report: &Report) -> String {
    let mut graph = graph(report);
    if graph.height == 0 {
        graph.height = HEIGHT;
        graph.body = "<text x=\"3\" y=\"12\">No wait for a lock was sampled.</text>\n".into();
    }
    let title = escape(&format!("Time waited for locks: {}", report.subject()));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100%\" height=\"{}\">\n<title>{title}\
         </title>\n<style>\n:root {{ color-scheme: light dark; }}\n{STYLE}</style>\n{}\
         <script><![CDATA[\n{SCRIPT}]]></script>\n</svg>\n",
        graph.height, graph.body
    )
}

/// A graph's elements, to be put into an `svg` element.
pub struct Graph {
    /// Height in pixels.
    pub height: usize,
    pub body: String,
}

/// Draws the graph. Its height is 0 if nothing was sampled.
pub fn graph(report: &Report) -> Graph {
    let mut locks: BTreeMap<&str, [Node; 2]> = BTreeMap::new();
    let sides = [&report.waiter_stacks, &report.holder_stacks];
    for (side, stacks) in sides.into_iter().enumerate() {
        for StackSum { frames, lock, ns, .. } in stacks {
            locks.entry(lock).or_default()[side].add(frames, *ns);
        }
    }
    let total: u64 = locks.values().map(|sides| sides[0].ns).sum();
    if total == 0 {
        return Graph { height: 0, body: String::new() };
    }
    let least = (total as f64 * NARROWEST) as u64;
    let rows =
        |side: usize| locks.values().map(|sides| sides[side].depth(least)).max().unwrap_or(0);
    let (above, below) = (rows(0), rows(1));
    let mut drawing = Drawing { total, least, body: String::new() };
    let mut by_time: Vec<_> = locks.iter().collect();
    by_time.sort_by_key(|(name, sides)| (std::cmp::Reverse(sides[0].ns), **name));
    let mut at = 0;
    for (drawn, (name, [waiters, holders])) in by_time.iter().enumerate() {
        if waiters.ns <= least {
            let (count, ns) = (by_time.len() - drawn, total - at);
            drawing.frame("l", &format!("{count} other locks"), at, ns, above);
            break;
        }
        drawing.frame("l", name, at, waiters.ns, above);
        drawing.calls("w", waiters, at, &|row| above - 1 - row, 0);
        drawing.calls("h", holders, at, &|row| above + 1 + row, 0);
        at += waiters.ns;
    }
    Graph { height: (above + 1 + below) * HEIGHT + 2, body: drawing.body }
}

struct Drawing {
    total: u64,
    least: u64,
    body: String,
}

impl Drawing {
    fn calls(
        &mut self,
        class: &str,
        node: &Node,
        mut at: u64,
        row_of: &dyn Fn(usize) -> usize,
        row: usize,
    ) {
        for (name, call) in &node.calls {
            if call.ns > self.least {
                self.frame(class, name, at, call.ns, row_of(row));
                self.calls(class, call, at, row_of, row + 1);
            }
            at += call.ns;
        }
    }

    /// Draws a frame. Positions are percentages, so that a wider window does not stretch the text.
    fn frame(&mut self, class: &str, name: &str, at: u64, ns: u64, row: usize) {
        let percent = |ns: u64| 100.0 * ns as f64 / self.total as f64;
        let (x, width) = (percent(at), percent(ns));
        let what = match class {
            "w" => "waited",
            "h" => "of waiting caused",
            _ => "waited for",
        };
        let name = escape(name);
        let shade = shade(&name);
        let _ = writeln!(
            self.body,
            "<svg class=\"f {class}{shade}\" x=\"{x:.3}%\" y=\"{}\" width=\"{width:.3}%\" \
             height=\"{}\" data-x=\"{x:.4}\" data-w=\"{width:.4}\"><title>{name}\n{} {what}, \
             {width:.1} %</title><rect width=\"100%\" height=\"100%\"/><text x=\"3\" y=\"12\">\
             {name}</text></svg>",
            row * HEIGHT,
            HEIGHT - 1,
            quantity::seconds(ns as f64 * 1e-9),
        );
    }
}

/// Chooses one of four shades by a function's name.
fn shade(name: &str) -> u32 {
    name.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into())) % 4
}

/// Escapes text for XML.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(in_xml(other)),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_add_up_along_stacks() {
        let frames = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut root = Node::default();
        root.add(&frames(&["main", "get"]), 30);
        root.add(&frames(&["main", "put"]), 10);
        let main = &root.calls["main"];
        assert_eq!((root.ns, main.ns, main.calls["get"].ns), (40, 40, 30));
        assert_eq!((root.depth(0), root.depth(10), root.depth(40)), (2, 2, 0));
    }

    #[test]
    fn escape_leaves_valid_xml() {
        assert_eq!(escape("a<b> & \"c\"\u{1}\u{ffff}"), "a&lt;b&gt; &amp; &quot;c&quot;??");
    }
}
