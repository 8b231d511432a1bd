//! Draws the last reports on a terminal's screen: a pure function of the reports and the size.
//!
//! | height | adds |
//! | --- | --- |
//! | 1 | the bound |
//! | a few lines | waits by kind of lock |
//! | more | the tasks that wait most, as many as fit |
//! | [`ROOM_FOR_BARS`] | the last minutes |
//!
//! Each line starts with the most important facts. Text that does not fit moves to the next line or
//! is left out.

use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, RenderDirection, Row, Sparkline, Table, Widget};

use crate::history::History;
use crate::kernel::LOCK_KINDS;
use crate::report::Named;

/// The bars appear if at least this many lines are left below the head.
const ROOM_FOR_BARS: u16 = 14;
/// Maximum height of a bar, which has eight steps per line.
const TALLEST_BARS: u16 = 5;

const BETWEEN: &str = "  ";
const KEYS: &str = "q or Ctrl-C ends";

/// A column of the table: title, width, and the text for a task.
type Column = (&'static str, u16, fn(&Named) -> String);

/// The columns in order of importance; the last ones are left out on a narrow terminal.
const COLUMNS: [Column; 5] = [
    ("share", 7, |task| format!("{:.1} %", 100.0 * task.share)),
    ("name", 15, |task| task.name.clone()),
    ("pid", 8, |task| task.tid.to_string()),
    ("core", 5, |task| task.core.to_string()),
    ("in the set", 10, |task| if task.is_in_set { "yes" } else { "no" }.into()),
];
/// Indices into [`COLUMNS`] from left to right.
const PLACES: [usize; 5] = [2, 1, 0, 3, 4];
const NAME: usize = 1;

pub fn draw(history: &History, area: Rect, buffer: &mut Buffer) {
    let area = area.intersection(buffer.area);
    if area.is_empty() {
        return;
    }
    let head = head(history, area.width);
    let (top, rest) = split(area, head.len() as u16);
    Paragraph::new(head).render(top, buffer);
    if rest.height < 3 {
        return;
    }
    // One empty line between the parts, and one line at the bottom.
    let (_, rest) = split(rest, 1);
    let (rest, bottom) = split(rest, rest.height - 1);
    let table = if rest.height < ROOM_FOR_BARS {
        rest
    } else {
        let height = (rest.height / 6).min(TALLEST_BARS);
        let (bars, rest) = split(rest, 2 * (1 + height));
        draw_bars(history, bars, buffer);
        split(rest, 1).1
    };
    let shown = draw_tasks(history, table, buffer);
    let more = (history.now.tasks as usize).saturating_sub(shown);
    let mut words =
        vec![KEYS.into(), format!("{:.0} s", history.now.since_start.as_secs_f64()).into()];
    if more > 0 {
        words.push(format!("{more} more tasks").into());
    }
    Paragraph::new(flow(words, area.width)).style(Modifier::DIM).render(bottom, buffer);
}

/// Splits off the first `height` lines of an area.
fn split(area: Rect, height: u16) -> (Rect, Rect) {
    let height = height.min(area.height);
    let rest = Rect { y: area.y + height, height: area.height - height, ..area };
    (Rect { height, ..area }, rest)
}

fn head(history: &History, width: u16) -> Vec<Line<'static>> {
    let now = &history.now;
    let found = if now.has_converged { Color::Green } else { Color::Yellow };
    let bound = format!("bound {} of {} ({})", now.bound, now.cores, now.phase());
    let policy = vec![
        Span::styled(bound, Style::new().fg(found).add_modifier(Modifier::BOLD)),
        format!("{:.1} % waited", 100.0 * now.waiting).into(),
        format!("{} votes", now.votes).into(),
        format!("{} lock-intensive tasks", now.tasks).into(),
        format!("{} changes", now.changes).into(),
    ];
    let mut locks =
        vec![format!("{:.1} processors waited", now.processors_waited(&history.before)).into()];
    let rates = LOCK_KINDS.iter().zip(now.rates(&history.before));
    locks.extend(rates.map(|(kind, rate)| Span::from(format!("{kind} {rate:.0}/s"))));
    let mut lines = flow(policy, width);
    lines.extend(flow(locks, width));
    lines
}

/// Breaks words into lines. Only a word wider than a line is cut.
fn flow(words: Vec<Span<'static>>, width: u16) -> Vec<Line<'static>> {
    let mut lines = vec![Line::default()];
    for word in words {
        let line = lines.last_mut().expect("the list starts with a line");
        if line.spans.is_empty() {
            line.push_span(word);
        } else if line.width() + BETWEEN.len() + word.width() <= width.into() {
            line.push_span(BETWEEN);
            line.push_span(word);
        } else {
            lines.push(word.into());
        }
    }
    lines
}

fn draw_bars(history: &History, area: Rect, buffer: &mut Buffer) {
    let columns = history.columns(area.width.into());
    let (first, second) = split(area, area.height / 2);
    let cores = f64::from(history.now.cores.max(1));
    let bounds: Vec<_> = columns.bounds.iter().map(|&bound| Some(bound)).collect();
    let (up_to, each) = (history.now.cores, columns.each);
    draw_series(&format!("bound, up to {up_to}; {each} s a column"), &bounds, cores, first, buffer);
    let most = columns.waiting.iter().flatten().fold(0.0, |most: f64, &value| most.max(value));
    let scale = [0.05, 0.1, 0.25, 0.5].into_iter().find(|&scale| most <= scale).unwrap_or(1.0);
    draw_series(
        &format!("waited, up to {:.0} %", 100.0 * scale),
        &columns.waiting,
        scale,
        second,
        buffer,
    );
}

fn draw_series(title: &str, values: &[Option<f64>], most: f64, area: Rect, buffer: &mut Buffer) {
    const STEPS: f64 = 10_000.0;
    let (top, bars) = split(area, 1);
    Line::from(title).style(Modifier::DIM).render(top, buffer);
    // The newest value is at the right margin.
    let values =
        values.iter().rev().map(|value| value.map(|value| (value / most * STEPS).round() as u64));
    Sparkline::default()
        .data(values)
        .max(STEPS as u64)
        .direction(RenderDirection::RightToLeft)
        .style(Color::Cyan)
        .render(bars, buffer);
}

/// Draws the table of tasks; returns their number.
fn draw_tasks(history: &History, area: Rect, buffer: &mut Buffer) -> usize {
    let tasks = &history.now.named;
    if tasks.is_empty() {
        return 0;
    }
    let mut width = 0;
    let fits = |(_, column, _): &&Column| {
        width += column + BETWEEN.len() as u16;
        width <= area.width + BETWEEN.len() as u16
    };
    let count = COLUMNS.iter().take_while(fits).count().max(1);
    let shown: Vec<_> = PLACES.into_iter().filter(|&column| column < count).collect();
    let aligned = |column: usize, text: String| {
        Text::from(text).alignment(if column == NAME { Alignment::Left } else { Alignment::Right })
    };
    let titles = Row::new(shown.iter().map(|&column| aligned(column, COLUMNS[column].0.into())));
    let rows = tasks
        .iter()
        .map(|task| Row::new(shown.iter().map(|&column| aligned(column, COLUMNS[column].2(task)))));
    let widths = shown.iter().map(|&column| Constraint::Length(COLUMNS[column].1));
    let table = Table::new(rows, widths)
        .header(titles.style(Modifier::DIM))
        .column_spacing(BETWEEN.len() as u16);
    Widget::render(table, area, buffer);
    tasks.len().min(area.height.saturating_sub(1).into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::kernel::Totals;
    use crate::report::Report;

    /// Twelve seconds with this many tasks; the search ends in the last one.
    fn history(tasks: u32) -> History {
        let mut history = History::default();
        let share = |task: u32| 0.9 / f64::from(task + 1);
        let named = |task| Named {
            tid: 200 + task,
            name: format!("server{task}"),
            share: share(task),
            core: task,
            is_in_set: task < 2,
        };
        for second in 1..=12_u64 {
            let totals = Totals {
                waits: [21_350 * second, 0, 12 * second, 3 * second, 0],
                spun_ns: [700_000_000 * second, 0, 0, 0, 0],
                ..Totals::default()
            };
            history.add(Report {
                since_start: Duration::from_secs(second),
                cores: 8,
                bound: if second < 6 { 8 } else { 2 },
                has_converged: second == 12,
                tasks,
                votes: 57,
                waiting: 0.341,
                changes: 9,
                totals,
                named: (0..tasks).map(named).collect(),
                ..Report::default()
            });
        }
        history
    }

    fn picture(history: &History, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(history, frame.area(), frame.buffer_mut())).unwrap();
        let buffer = terminal.backend().buffer();
        let cells = |y| (0..width).map(move |x| buffer[(x, y)].symbol());
        (0..height).map(|y| cells(y).collect::<String>().trim_end().to_owned()).collect()
    }

    #[test]
    fn standard_terminal_shows_everything() {
        let lines = picture(&history(3), 80, 24);
        let expected = "\
bound 2 of 8 (found)  34.1 % waited  57 votes  3 lock-intensive tasks  9 changes
0.7 processors waited  spin 21350/s  rwlock 0/s  mutex 12/s  rwsem 3/s
other 0/s

bound, up to 8; 4 s a column
                                                                             █
                                                                             █▂
                                                                             ██▆
waited, up to 50 %

                                                                             ███
                                                                             ███

     pid  name               share   core  in the set
     200  server0           90.0 %      0         yes
     201  server1           45.0 %      1         yes
     202  server2           30.0 %      2          no






q or Ctrl-C ends  12 s";
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn smallest_terminals_show_the_bound() {
        for (width, height) in [(20, 1), (20, 2), (22, 5), (80, 1), (30, 200)] {
            let lines = picture(&history(3), width, height);
            assert_eq!(lines[0][..20], *"bound 2 of 8 (found)", "{width} x {height}");
        }
        assert_eq!(picture(&history(3), 7, 1), ["bound 2"]);
    }

    #[test]
    fn every_size_can_be_drawn() {
        for tasks in [0, 1, 500] {
            for width in (0..60).chain([80, 200, 400]) {
                for height in (0..40).chain([200]) {
                    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
                    draw(&history(tasks), buffer.area, &mut buffer);
                    // The terminal has shrunk since its size was read.
                    draw(&history(tasks), Rect::new(0, 0, width + 9, height + 9), &mut buffer);
                }
            }
        }
    }

    #[test]
    fn no_tasks_draw_no_table() {
        let lines = picture(&history(0), 80, 24);
        assert!(lines[0].contains("0 lock-intensive tasks"), "{lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("pid")), "{lines:#?}");
        assert_eq!(lines[23], "q or Ctrl-C ends  12 s");
    }

    #[test]
    fn empty_history_can_be_drawn() {
        let lines = picture(&History::default(), 80, 24);
        assert_eq!(
            lines[0],
            "bound 0 of 0 (searching)  0.0 % waited  0 votes  0 lock-intensive tasks"
        );
    }

    #[test]
    fn tasks_beyond_the_height_are_counted() {
        let lines = picture(&history(500), 80, 12);
        let shown = lines.iter().filter(|line| line.contains("server")).count();
        assert_eq!(shown, 5, "{lines:#?}");
        assert_eq!(lines[11], "q or Ctrl-C ends  12 s  495 more tasks");
    }

    #[test]
    fn narrow_terminal_shows_the_most_important_columns() {
        let table = |width| {
            let lines = picture(&history(1), width, 20);
            let at = lines.iter().position(|line| line.contains("server0")).map_or(18, |at| at - 1);
            lines[at..=at + 1].to_vec()
        };
        assert_eq!(
            table(41),
            [
                "     pid  name               share   core",
                "     200  server0           90.0 %      0"
            ]
        );
        assert_eq!(
            table(40),
            ["     pid  name               share", "     200  server0           90.0 %"]
        );
        assert_eq!(table(24), ["name               share", "server0           90.0 %"]);
        assert!(picture(&history(1), 12, 20).iter().any(|line| line.trim() == "90.0 %"));
    }

    #[test]
    fn task_name_stays_within_its_column() {
        let mut history = history(2);
        history.now.named[0].name = "a name that is longer than any of a task".into();
        history.now.named[1].name = "\u{1b}[31m\u{7}\nred".into();
        let lines = picture(&history, 80, 24);
        let text = lines.concat();
        assert!(!text.contains(|character: char| character.is_control()), "{lines:#?}");
        let row =
            |tid| lines.iter().find(|line| line.trim_start().starts_with(tid)).unwrap().as_str();
        assert_eq!(row("200"), "     200  a name that is    90.0 %      0         yes");
        assert!(row("201").ends_with("45.0 %      1         yes"), "{lines:#?}");
    }

    #[test]
    fn wide_characters_keep_columns_aligned() {
        let mut history = history(1);
        history.now.named[0].name = "数据库".into();
        let lines = picture(&history, 80, 24);
        // The second cell of a wide character is empty and reads as a space here.
        let row = lines.iter().find(|line| line.contains('数')).unwrap();
        assert!(row.ends_with("90.0 %      0         yes"), "{row}");
    }
}
