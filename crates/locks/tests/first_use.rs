//! A process forks while another of its threads uses the library for the first time. The process
//! must not have used it before, so this test has a program of its own.

#![cfg(all(not(loom), target_arch = "x86_64"))]

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use unconvoy::runtime::controller_report;

/// Progress of the test: the first user waits in the kernel, and the fork is over.
static STEP: AtomicU32 = AtomicU32::new(0);
const IN_FIRST_USE: u32 = 1;
const FORKED: u32 = 2;

/// Holds the calling thread in its `madvise`, which then fails, until the fork is over.
extern "C" fn hold_up(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    STEP.store(IN_FIRST_USE, SeqCst);
    while STEP.load(SeqCst) != FORKED {
        thread::yield_now();
    }
    // SAFETY: the kernel passes a `ucontext_t`, which is this handler's alone.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.gregs[libc::REG_RAX as usize] = -i64::from(libc::EINVAL);
}

/// Makes each `madvise(MADV_WIPEONFORK)` of the calling thread raise SIGSYS. False if the kernel
/// refuses.
fn trap_wipe_on_fork() -> bool {
    const NUMBER: u32 = 0;
    const THIRD_ARGUMENT: u32 = 16 + 2 * 8;
    let load = |offset| (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, offset);
    let skip_unless = |value, count| (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, count, value);
    let give = |result| (libc::BPF_RET | libc::BPF_K, 0, result);
    let mut program = [
        load(NUMBER),
        skip_unless(libc::SYS_madvise as u32, 3),
        load(THIRD_ARGUMENT),
        skip_unless(libc::MADV_WIPEONFORK as u32, 1),
        give(libc::SECCOMP_RET_TRAP),
        give(libc::SECCOMP_RET_ALLOW),
    ]
    .map(|(code, jf, k)| libc::sock_filter { code: code as u16, jt: 0, jf, k });
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the action and the program are valid for the length of the calls.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = hold_up as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()), 0);
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

#[test]
fn child_forked_during_first_use_does_not_wait_for_parents_thread() {
    thread::scope(|scope| {
        let user = scope.spawn(|| {
            let is_trapped = trap_wipe_on_fork();
            if is_trapped {
                controller_report();
            }
            is_trapped
        });
        while STEP.load(SeqCst) != IN_FIRST_USE {
            if user.is_finished() {
                assert!(!user.join().expect("no panic"), "the first use made no trapped call");
                println!("skipped: filters of system calls are not allowed here");
                return;
            }
            thread::yield_now();
        }
        // SAFETY: the child takes no lock of this program.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork");
        if child == 0 {
            // SAFETY: kills or ends this child.
            unsafe {
                libc::alarm(20);
                libc::_exit(i32::from(controller_report().running));
            }
        }
        STEP.store(FORKED, SeqCst);
        let mut status = 0;
        // SAFETY: writes `status` only.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
    });
}
