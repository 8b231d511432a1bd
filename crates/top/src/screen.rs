//! The loop: takes snapshots, reads keys, draws.

use std::io::{self, BufWriter, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TermionBackend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use unconvoy_cli::top::target;
use unconvoy_cli::top::watcher::{RENEWAL, Watcher};
use unconvoy_terminal::Taken;

use crate::keys::{Key, keys};
use crate::picture;
use crate::state::{Action, State, View};

/// Shows the screen until the user quits.
///
/// # Errors
///
/// The process cannot be watched, or the terminal does not respond.
pub fn show(pid: Option<u32>, interval: Duration) -> anyhow::Result<()> {
    let mut state = State::default();
    let mut watcher = None;
    match pid {
        Some(pid) => watch(Watcher::open(pid)?, &mut state, &mut watcher),
        None => {
            state.processes = target::publishing();
            if let [only] = &state.processes[..] {
                watch(Watcher::open(only.pid)?, &mut state, &mut watcher);
            }
        }
    }
    let (mut wakes, wake) = UnixStream::pair()?;
    wakes.set_nonblocking(true)?;
    wake.set_nonblocking(true)?;
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
        signal_hook::flag::register(signal, Arc::clone(&ends))?;
        signal_hook::low_level::pipe::register(signal, wake.try_clone()?)?;
    }
    signal_hook::low_level::pipe::register(SIGWINCH, wake)?;
    let taken = Taken::take()?;
    let output = BufWriter::with_capacity(1 << 16, taken.output()?);
    let mut terminal = Terminal::new(TermionBackend::new(output))?;
    let mut due = Instant::now() + interval.min(Duration::from_millis(500));
    while !ends.load(Relaxed) {
        terminal.draw(|frame| picture::draw(&state, frame.area(), frame.buffer_mut()))?;
        if let Some(watcher) = &mut watcher {
            watcher.renew();
        }
        let wait = due.saturating_duration_since(Instant::now()).min(RENEWAL);
        let Some(keys) = typed(&wakes, wait)? else { return Ok(()) };
        for key in keys {
            match state.press(key) {
                Action::Draw => {}
                Action::Quit => return Ok(()),
                Action::List => {
                    watcher = None;
                    due = Instant::now();
                }
                Action::Watch(pid) => match Watcher::open(pid) {
                    Ok(opened) => {
                        watch(opened, &mut state, &mut watcher);
                        due = Instant::now() + interval;
                    }
                    Err(error) => state.complaint = Some(format!("{error:#}")),
                },
            }
        }
        while let Ok(1..) = wakes.read(&mut [0; 64]) {}
        if Instant::now() >= due {
            due = Instant::now() + interval;
            match &mut watcher {
                Some(watcher) => look(watcher, &mut state),
                None => state.processes = target::publishing(),
            }
        }
    }
    Ok(())
}

fn watch(opened: Watcher, state: &mut State, watcher: &mut Option<Watcher>) {
    (state.view, state.selected, state.complaint) = (View::Locks, 0, None);
    *watcher = Some(opened);
}

/// Takes a snapshot. After the process's end, the last one stays.
fn look(watcher: &mut Watcher, state: &mut State) {
    if state.snapshot.as_ref().is_some_and(|snapshot| snapshot.ended) {
        return;
    }
    match watcher.look() {
        Ok(snapshot) => (state.snapshot, state.complaint) = (Some(snapshot), None),
        Err(error) => state.complaint = Some(format!("{error:#}")),
    }
}

/// Waits for keys or a wake-up. `None` at the end of input: the user is gone.
fn typed(wakes: &UnixStream, wait: Duration) -> anyhow::Result<Option<Vec<Key>>> {
    let stdin = io::stdin();
    let mut sources = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(wakes, PollFlags::IN)];
    let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
    match poll(&mut sources, Some(&wait)) {
        Err(rustix::io::Errno::INTR) => return Ok(Some(Vec::new())),
        result => result?,
    };
    if sources[0].revents().is_empty() {
        return Ok(Some(Vec::new()));
    }
    let mut bytes = [0; 256];
    match rustix::io::read(&stdin, &mut bytes) {
        Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(Some(Vec::new())),
        Err(_) | Ok(0) => Ok(None),
        Ok(length) => Ok(Some(keys(&bytes[..length]))),
    }
}
