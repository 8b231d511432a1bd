//! Draws the state on a terminal's screen: a pure function of the state and the size.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use unconvoy_cli::top::snapshot::{Lock, Order};
use unconvoy_cli::top::text;

use crate::state::{State, View};

/// The smallest screen that has room for a table.
const LEAST: (u16, u16) = (40, 6);

/// Width of the figures' columns in [`text::COLUMNS`], each with a blank after it.
const WIDTH: usize = 8;

/// Width that remains for the names. A narrower screen has fewer figures.
const NAMES: usize = 20;

const KEYS: &str = "arrows Enter:open s:sort /:filter p:processes q:quit";

/// Draws the screen.
pub fn draw(state: &State, area: Rect, buffer: &mut Buffer) {
    let mut page = Page { area: area.intersection(buffer.area), buffer, line: 0 };
    if page.area.width < LEAST.0 || page.area.height < LEAST.1 {
        page.add(&format!("needs {} x {}", LEAST.0, LEAST.1), Style::new());
        return;
    }
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let dim = Style::new().add_modifier(Modifier::DIM);
    match (&state.view, &state.snapshot) {
        (View::Processes, _) => {
            page.add("Processes under unconvoy that have waited for locks", bold);
            add_complaint(state, &mut page);
            draw_processes(state, &mut page);
        }
        (_, None) => {
            page.add("watching; the first snapshot takes a moment", dim);
            add_complaint(state, &mut page);
        }
        (view, Some(snapshot)) => {
            page.add(&text::heading(snapshot), bold);
            for line in text::summary(snapshot) {
                page.add(&line, Style::new());
            }
            for remark in &snapshot.remarks {
                remark.lines().for_each(|line| page.add(line, dim));
            }
            add_complaint(state, &mut page);
            match view {
                View::Lock(name, kind) => draw_lock(state, name, kind, snapshot.seconds, &mut page),
                _ => draw_locks(state, snapshot.seconds, &mut page),
            }
        }
    }
    page.line = page.area.height - 1;
    let bottom = match state.is_typing {
        true => format!("filter: {}_", state.filter),
        false if state.filter.is_empty() => KEYS.to_string(),
        false => format!("filter: {}  {KEYS}", state.filter),
    };
    page.buffer.set_style(page.row(), Style::reset());
    page.add(&format!("{bottom:<width$}", width = usize::from(page.area.width)), dim);
}

/// Lines from the top.
struct Page<'a> {
    area: Rect,
    buffer: &'a mut Buffer,
    line: u16,
}

impl Page<'_> {
    fn row(&self) -> Rect {
        Rect { y: self.area.y + self.line, height: 1, ..self.area }
    }

    /// Adds a line, cut at the width; nothing below the last line.
    fn add(&mut self, text: &str, style: Style) {
        if self.line < self.area.height {
            let row = self.row();
            self.buffer.set_stringn(row.x, row.y, text, row.width.into(), style);
            self.line += 1;
        }
    }

    /// Number of lines left above the line of keys.
    fn room(&self) -> usize {
        usize::from(self.area.height.saturating_sub(self.line + 1))
    }
}

/// Above the rows, which may fill the screen.
fn add_complaint(state: &State, page: &mut Page<'_>) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    state.complaint.iter().flat_map(|text| text.lines()).for_each(|line| page.add(line, bold));
}

/// The rows around the selected one that fit, with their numbers.
fn visible<T>(rows: &[T], selected: usize, room: usize) -> impl Iterator<Item = (usize, &T)> {
    let first = (selected + 1).saturating_sub(room);
    rows.iter().enumerate().skip(first).take(room)
}

fn highlighted(is_selected: bool) -> Style {
    if is_selected { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() }
}

fn draw_processes(state: &State, page: &mut Page<'_>) {
    let table = text::processes(&state.processes);
    let mut lines = table.lines();
    page.add("", Style::new());
    page.add(lines.next().unwrap_or_default(), Style::new().add_modifier(Modifier::BOLD));
    let rows: Vec<&str> = lines.collect();
    let selected = state.selected.min(rows.len().saturating_sub(1));
    if rows.is_empty() {
        page.add("none yet: start one with `unconvoy run -- PROGRAM`", Style::new());
    }
    for (index, row) in visible(&rows, selected, page.room()) {
        page.add(row, highlighted(index == selected));
    }
}

fn draw_locks(state: &State, seconds: f64, page: &mut Page<'_>) {
    let locks = state.locks();
    page.add("", Style::new());
    let mut heading = String::new();
    let figures = usize::from(page.area.width).saturating_sub(NAMES) / (WIDTH + 1);
    for name in text::COLUMNS.into_iter().take(figures) {
        let mark = if name == state.order.name() { ">" } else { "" };
        heading += &format!("{:>WIDTH$} ", format!("{mark}{name}"));
    }
    heading += if state.order == Order::Name { " >lock" } else { " lock" };
    page.add(&heading, Style::new().add_modifier(Modifier::BOLD));
    if locks.is_empty() {
        page.add("no wait for a lock ended in this interval", Style::new());
    }
    let selected = state.selected.min(locks.len().saturating_sub(1));
    for (index, lock) in visible(&locks, selected, page.room()) {
        let mut row = String::new();
        for value in text::columns(lock, seconds).into_iter().take(figures) {
            row += &format!("{value:>WIDTH$} ");
        }
        page.add(&format!("{row} {}", text::name(lock)), highlighted(index == selected));
    }
}

fn draw_lock(state: &State, name: &str, kind: &str, seconds: f64, page: &mut Page<'_>) {
    page.add("", Style::new());
    page.add(name, Style::new().add_modifier(Modifier::BOLD));
    let Some(lock) = state.lock(name, kind) else {
        return page.add("no wait for it ended in this interval", Style::new());
    };
    for line in figures(lock, seconds) {
        page.add(&line, Style::new());
    }
    page.add("", Style::new());
    for line in text::places(lock, page.room() / 2) {
        page.add(&line, Style::new());
    }
}

/// Two lines on a lock.
fn figures(lock: &Lock, seconds: f64) -> [String; 2] {
    let [waited, share, waits, median, held] = text::columns(lock, seconds);
    let slowest = lock.wait_p99_ns.map_or_else(|| "-".into(), text::time);
    [
        format!("{}: {waited} ({share}), {waits} waits/s, {} sleeps", lock.kind, lock.slept),
        format!("wait median {median}, p99 {slowest}; hold median {held}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use unconvoy_cli::top::snapshot::{At, Controller, Snapshot};
    use unconvoy_cli::top::target::Publishing;

    fn drawn(state: &State, width: u16, height: u16) -> String {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        draw(state, area, &mut buffer);
        let rows = (0..height).map(|y| {
            let row: String = (0..width).map(|x| buffer[(x, y)].symbol().to_string()).collect();
            format!("{}\n", row.trim_end())
        });
        rows.collect()
    }

    fn state() -> State {
        let at = |place: &str, ns| At { place: place.into(), ns };
        let lock = Lock {
            name: "queue_lock".into(),
            kind: "mutex",
            locks: 1,
            waits: 1500,
            waited_ns: 900_000_000,
            share: 1.0,
            wait_p50_ns: Some(500_000),
            held_p50_ns: Some(80_000),
            waiters: vec![at("take (server.c:7)", 900_000_000)],
            holders: vec![at("put (server.c:9)", 900_000_000)],
            ..Lock::default()
        };
        let snapshot = Snapshot {
            pid: 4711,
            program: "/usr/bin/server".into(),
            lock: "loiter".into(),
            load: "control".into(),
            seconds: 1.0,
            waits: 1500,
            waited_ns: 900_000_000,
            controller: Some(Controller { runnable: 9.5, capacity: 4.0, ..Controller::default() }),
            locks: vec![lock],
            ..Snapshot::default()
        };
        State { view: View::Locks, snapshot: Some(snapshot), ..State::default() }
    }

    #[test]
    fn screen_of_80_by_24_shows_figures_and_name() {
        let text = drawn(&state(), 80, 24);
        assert!(text.starts_with("server (process 4711), loiter+control\n"), "{text}");
        for part in ["1500 waits/s; 0.90 threads", "9.5 runnable on 4.0", ">waited", "queue_lock"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(text.lines().last().unwrap().contains("q:quit"), "{text}");
    }

    #[test]
    fn narrow_screen_shows_the_name() {
        let text = drawn(&state(), 40, 24);
        assert!(text.contains("queue_lock") && text.contains("share"), "{text}");
        assert!(!text.contains("held"), "{text}");
    }

    #[test]
    fn open_lock_shows_both_sides() {
        let state = State { view: View::Lock("queue_lock".into(), "mutex"), ..state() };
        let text = drawn(&state, 80, 24);
        assert!(text.contains("waits") && text.contains("take (server.c:7)"), "{text}");
        assert!(text.contains("holds") && text.contains("put (server.c:9)"), "{text}");
    }

    #[test]
    fn every_size_is_drawn() {
        let mut state = state();
        let lock = state.snapshot.as_ref().unwrap().locks[0].clone();
        state.snapshot.as_mut().unwrap().locks = vec![lock; 200];
        state.selected = 150;
        for view in [View::Processes, View::Locks, View::Lock("queue_lock".into(), "mutex")] {
            state.view = view;
            for width in [1, 5, 39, 40, 79, 80, 200] {
                for height in [1, 2, 5, 6, 7, 10, 24, 60] {
                    let text = drawn(&state, width, height);
                    let is_small = width < LEAST.0 || height < LEAST.1;
                    let said = text.starts_with(&"needs 40 x 6"[..usize::from(width).min(12)]);
                    assert_eq!(is_small, said, "{width} x {height}\n{text}");
                }
            }
        }
    }

    #[test]
    fn complaint_is_visible_above_more_rows_than_fit() {
        let mut state = State { complaint: Some("no process 4711".into()), ..state() };
        let lock = state.snapshot.as_ref().unwrap().locks[0].clone();
        state.snapshot.as_mut().unwrap().locks = vec![lock; 200];
        let process = Publishing {
            pid: 7,
            command: "server".into(),
            threads: 2,
            served: "loiter+control".into(),
        };
        state.processes = vec![process; 200];
        for view in [View::Processes, View::Locks] {
            state.view = view;
            let text = drawn(&state, 80, 24);
            assert!(text.contains("\nno process 4711\n"), "{text}");
        }
    }

    #[test]
    fn selected_row_is_visible() {
        let rows: Vec<usize> = (0..100).collect();
        for selected in [0, 9, 10, 99] {
            let shown: Vec<usize> = visible(&rows, selected, 10).map(|(index, _)| index).collect();
            assert!(shown.len() == 10 && shown.contains(&selected), "{selected} {shown:?}");
        }
        assert_eq!(visible(&rows, 5, 0).count(), 0);
    }
}
