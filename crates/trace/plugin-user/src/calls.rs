//! What the program's system calls mean for its sections and for the collection.

use crate::collector::{Collector, collector};
use crate::guest::Program;
use crate::messages;
use crate::system_calls::{self, number};
use crate::thread::BY_NUMBER;
use std::ffi::c_uint;
use std::sync::atomic::Ordering;
use unconvoy_trace_collector::api::Id;
use unconvoy_trace_collector::front::guarded;
use unconvoy_trace_collector::memory::Memory as _;

#[allow(clippy::too_many_arguments, reason = "the interface's own signature")]
pub extern "C" fn call(
    _: Id,
    vcpu: c_uint,
    number: i64,
    a1: u64,
    a2: u64,
    a3: u64,
    a4: u64,
    _: u64,
    _: u64,
    _: u64,
    _: u64,
) {
    guarded::<Collector>(|| {
        let Some(collector) = collector() else { return };
        if let Some(thread) = BY_NUMBER.get(vcpu) {
            thread.publish_counts();
            if system_calls::is_io(number, [a1, a2, a3, a4]) {
                thread.mark_io();
            }
            if is_copy(number) {
                thread.pause_watching();
            }
        }
        match number {
            number::MMAP if a3 & libc::PROT_EXEC as u64 != 0 => {
                collector.mapped.store(true, Ordering::Relaxed)
            }
            number::RT_SIGACTION if a2 != 0 => handle_signal(collector, a1, a2),
            number::KILL
            | number::TKILL
            | number::TGKILL
            | number::RT_SIGQUEUEINFO
            | number::RT_TGSIGQUEUEINFO => {
                send_signal(collector, number, [a1, a2, a3, a4]);
            }
            number::CLONE if a1 & libc::CLONE_THREAD as u64 != 0 => {}
            number::FORK | number::VFORK | number::CLONE => {
                collector.forks.fetch_add(1, Ordering::Relaxed);
            }
            number::EXIT_GROUP => collector.status.store(a1 as i32 & 0xff, Ordering::Relaxed),
            number::EXECVE if !is_executable(a1) => {}
            number::EXECVE | number::EXECVEAT => become_another(collector),
            _ => {}
        }
    });
}

pub extern "C" fn return_from_call(_: Id, vcpu: c_uint, number: i64, _: i64) {
    guarded::<Collector>(|| {
        if let (true, Some(_), Some(thread)) = (is_copy(number), collector(), BY_NUMBER.get(vcpu)) {
            thread.resume_watching();
        }
    });
}

fn is_copy(call: i64) -> bool {
    matches!(call, number::CLONE | number::CLONE3 | number::FORK | number::VFORK)
}

/// Whether the program's string at `path` names an executable file.
fn is_executable(path: u64) -> bool {
    let mut path = Program.string(path, libc::PATH_MAX as usize);
    path.push(0);
    // SAFETY: a terminated string.
    !path.starts_with(&[0]) && unsafe { libc::access(path.as_ptr().cast(), libc::X_OK) } == 0
}

/// Tracks whether the program handles or ignores SIGABRT, which `abort` sends.
fn handle_signal(collector: &Collector, signal: u64, action: u64) {
    if signal == libc::SIGABRT as u64
        && let Some(handler) = Program.word(action)
    {
        collector.survives_abort.store(handler != libc::SIG_DFL as u64, Ordering::Relaxed);
    }
}

/// Prepares the stream for a signal that the program sends. SIGKILL to itself is fatal, and so is
/// SIGABRT without a handler, so the stream is completed first. (If the program merely blocks
/// SIGABRT, the collection still ends.) Before any other signal the pending records are written. If
/// programs commonly end themselves with that signal, the locks' counts are written as well.
fn send_signal(collector: &Collector, number: i64, arguments: [u64; 4]) {
    match system_calls::signal_to_self(number, arguments) {
        Some(libc::SIGKILL) => return collector.finish(),
        Some(libc::SIGABRT) if !collector.survives_abort.load(Ordering::Relaxed) => {
            return collector.finish();
        }
        Some(
            libc::SIGHUP
            | libc::SIGINT
            | libc::SIGQUIT
            | libc::SIGABRT
            | libc::SIGSEGV
            | libc::SIGTERM,
        ) => {
            collector.write_counts();
        }
        _ => {}
    }
    collector.collection.log.write();
}

/// Completes the stream before an `exec`: the new program runs natively or under another QEMU.
fn become_another(collector: &Collector) {
    publish_all();
    collector.note(messages::replaced_by_exec());
    collector.replaced.store(true, Ordering::Relaxed);
    collector.finish();
}

/// Publishes the counts of all threads. None of them runs translated code any longer.
pub fn publish_all() {
    BY_NUMBER.all().for_each(|thread| thread.publish_counts());
}
