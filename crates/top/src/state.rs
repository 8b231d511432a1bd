//! What the screen shows, and what a key changes.

use unconvoy_cli::top::snapshot::{Lock, Order, Snapshot};
use unconvoy_cli::top::target::Publishing;

use crate::keys::Key;

/// Rows that a page key moves by.
const PAGE: usize = 10;

/// The part of the screen below the head.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum View {
    /// The processes to choose from.
    #[default]
    Processes,
    /// The locks of a process.
    Locks,
    /// The places of one lock, by its name and kind.
    Lock(String, &'static str),
}

/// What the loop does after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Draws.
    Draw,
    /// Watches this process.
    Watch(u32),
    /// Watches none, and lists the processes.
    List,
    /// Ends.
    Quit,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub struct State {
    pub view: View,
    pub order: Order,
    pub filter: String,
    /// Whether keys go to the filter.
    pub is_typing: bool,
    /// Index of the selected row.
    pub selected: usize,
    pub processes: Vec<Publishing>,
    pub snapshot: Option<Snapshot>,
    /// Why the last chosen process is not watched, or has no new snapshot.
    pub complaint: Option<String>,
}

impl State {
    /// The locks to show.
    pub fn locks(&self) -> Vec<&Lock> {
        let locks = self.snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.locks);
        self.order.sorted(locks, &self.filter)
    }

    /// The open lock; `None` if no thread waited for it in the last interval.
    pub fn lock(&self, name: &str, kind: &str) -> Option<&Lock> {
        let mut locks = self.snapshot.as_ref()?.locks.iter();
        locks.find(|lock| (lock.name.as_str(), lock.kind) == (name, kind))
    }

    fn rows(&self) -> usize {
        match self.view {
            View::Processes => self.processes.len(),
            View::Locks => self.locks().len(),
            View::Lock(..) => 0,
        }
    }

    /// Handles a key.
    pub fn press(&mut self, key: Key) -> Action {
        if self.is_typing {
            return self.type_filter(key);
        }
        let last = self.rows().saturating_sub(1);
        match key {
            Key::Char('q' | 'Q') => return Action::Quit,
            Key::Up => self.selected = self.selected.min(last).saturating_sub(1),
            Key::Down => self.selected = (self.selected + 1).min(last),
            Key::PageUp => self.selected = self.selected.min(last).saturating_sub(PAGE),
            Key::PageDown => self.selected = (self.selected + PAGE).min(last),
            Key::Enter => return self.open(),
            Key::Escape | Key::Backspace => match self.view {
                View::Lock(..) => self.view = View::Locks,
                _ => self.filter.clear(),
            },
            Key::Char('s') => {
                let index = Order::ALL.iter().position(|&order| order == self.order);
                self.order = Order::ALL[index.map_or(0, |index| (index + 1) % Order::ALL.len())];
            }
            Key::Char('/') if self.view == View::Locks => self.is_typing = true,
            Key::Char('p') => {
                (self.view, self.selected) = (View::Processes, 0);
                (self.snapshot, self.complaint) = (None, None);
                return Action::List;
            }
            Key::Char(_) => {}
        }
        Action::Draw
    }

    fn type_filter(&mut self, key: Key) -> Action {
        match key {
            Key::Char(letter) => self.filter.push(letter),
            Key::Backspace => _ = self.filter.pop(),
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.is_typing = false;
                self.filter.clear();
            }
            _ => {}
        }
        self.selected = 0;
        Action::Draw
    }

    /// Opens the selected process or lock; closes an open lock.
    fn open(&mut self) -> Action {
        match self.view {
            View::Processes => {
                let selected = self.selected.min(self.processes.len().saturating_sub(1));
                if let Some(process) = self.processes.get(selected) {
                    return Action::Watch(process.pid);
                }
            }
            View::Locks => {
                let locks = self.locks();
                let lock = locks.get(self.selected.min(locks.len().saturating_sub(1)));
                if let Some(lock) = lock {
                    self.view = View::Lock(lock.name.clone(), lock.kind);
                }
            }
            View::Lock(..) => self.view = View::Locks,
        }
        Action::Draw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        let lock = |name: &str, waited_ns| Lock {
            name: name.into(),
            kind: "mutex",
            waited_ns,
            ..Lock::default()
        };
        let snapshot =
            Snapshot { locks: vec![lock("one", 3), lock("two", 2)], ..Snapshot::default() };
        State { view: View::Locks, snapshot: Some(snapshot), ..State::default() }
    }

    #[test]
    fn enter_opens_the_selected_lock_and_escape_closes_it() {
        let mut state = state();
        for key in [Key::Down, Key::Down, Key::Enter] {
            assert_eq!(state.press(key), Action::Draw);
        }
        assert_eq!(state.view, View::Lock("two".into(), "mutex"));
        assert_eq!(state.lock("two", "mutex").unwrap().waited_ns, 2);
        state.press(Key::Escape);
        assert_eq!(state.view, View::Locks);
    }

    #[test]
    fn lock_of_another_kind_and_the_same_name_is_another() {
        let mut state = state();
        let locks = &mut state.snapshot.as_mut().unwrap().locks;
        (locks[1].name, locks[1].kind) = ("one".into(), "spin");
        state.press(Key::Down);
        state.press(Key::Enter);
        assert_eq!(state.view, View::Lock("one".into(), "spin"));
        assert_eq!(state.lock("one", "spin").unwrap().waited_ns, 2);
    }

    #[test]
    fn filter_takes_letters_that_are_keys_otherwise() {
        let mut state = state();
        for key in ['/', 'q', 't', 'w'].map(Key::Char) {
            assert_eq!(state.press(key), Action::Draw);
        }
        assert_eq!((state.filter.as_str(), state.locks().len()), ("qtw", 0));
        state.press(Key::Enter);
        assert_eq!(state.press(Key::Char('q')), Action::Quit);
        state.press(Key::Escape);
        assert_eq!(state.locks().len(), 2);
    }

    #[test]
    fn selection_survives_fewer_rows() {
        let mut state = state();
        state.press(Key::PageDown);
        assert_eq!(state.selected, 1);
        state.snapshot.as_mut().unwrap().locks.pop();
        state.press(Key::Enter);
        assert_eq!(state.view, View::Lock("one".into(), "mutex"));
        state.snapshot = None;
        state.view = View::Locks;
        state.press(Key::Enter);
        assert_eq!(state.view, View::Locks);
    }

    #[test]
    fn processes_are_chosen_by_enter() {
        let process = Publishing {
            pid: 7,
            command: "server".into(),
            threads: 2,
            served: "loiter+control".into(),
        };
        let mut state = State { processes: vec![process], ..State::default() };
        assert_eq!(state.press(Key::Enter), Action::Watch(7));
        state.view = View::Locks;
        state.complaint = Some("no snapshot".into());
        assert_eq!(state.press(Key::Char('p')), Action::List);
        assert_eq!((state.view, state.complaint), (View::Processes, None));
    }
}
