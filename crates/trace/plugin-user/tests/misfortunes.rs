//! Programs that could confuse the collector. Each must behave as without the collector, and the
//! stream must have all that was seen.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use support::{plugin, run, run_with, skipped};

const LOCKED: &str = "static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static volatile long \
    x;\n\
    static void locked(int times) { for (int i = 0; i < times; i++) { pthread_mutex_lock(&m); \
    x++; pthread_mutex_unlock(&m); } }\n";

#[test]
fn program_without_locks_has_no_sections() {
    if skipped() {
        return;
    }
    let run = run("int main(void) { puts(\"hello\"); return 7; }", &[], "");
    assert_eq!((run.error.as_deref(), run.stdout().as_str()), (None, "hello\n"));
    assert!(run.sections.is_empty() && run.end.contains("\"exit_status\":7"), "{}", run.end);
    assert!(run.end.contains("libc.so.6"), "{}", run.end);
}

#[test]
fn static_program_needs_symbols() {
    if skipped() {
        return;
    }
    let program =
        format!("{LOCKED}int main(void) {{ locked(100); PRINT(m); PRINT(x); return 0; }}");
    let with = run(&program, &["-static"], "rate=1");
    let lock = with.lock("m");
    assert_eq!((lock.acquisitions, lock.sampled), (100, 100), "{}", with.end);
    assert!(
        with.sections_of(lock)
            .iter()
            .all(|section| support::Run::words(section) == [with.address("x")])
    );
    let without = run(&program, &["-static", "-s"], "rate=1");
    assert_eq!(without.error, None);
    assert!(
        without.sections.is_empty() && without.end.contains("\"functions\":[]"),
        "{}",
        without.end
    );
}

#[test]
fn stripped_and_non_pie_programs_are_sampled() {
    if skipped() {
        return;
    }
    let program = format!("{LOCKED}int main(void) {{ locked(100); PRINT(m); return 0; }}");
    for flags in [&["-s"][..], &["-s", "-no-pie"], &["-fno-plt", "-Wl,-z,now"]] {
        let run = run(&program, flags, "rate=1");
        assert_eq!(run.lock("m").sampled, 100, "{flags:?}: {}", run.end);
        assert!(
            run.sections.iter().all(|section| section.words.len() == 1),
            "{flags:?}: {:x?}",
            run.sections
        );
    }
}

#[test]
fn crash_keeps_written_sections() {
    if skipped() {
        return;
    }
    // The flusher must write the sections: the pause exceeds its interval.
    let program = format!(
        "{LOCKED}int main(void) {{ locked(1000); usleep(300000); *(volatile int *)8 = 1; return \
            0; }}"
    );
    let run = run(&program, &[], "rate=1");
    let status = run.output.as_ref().expect("it ran").status;
    assert!(status.code() == Some(139) || status.signal() == Some(11), "{status:?}");
    assert!(run.error.expect("no end record").contains("end"));
    assert_eq!(run.sections.len(), 1000);
}

#[test]
fn killed_program_keeps_sections_and_counts() {
    if skipped() {
        return;
    }
    // Killed from outside: a thread that sleeps, one that waits for a lock, and one that makes no
    // system call.
    for (rest, after) in [
        ("pause();", ""),
        ("pthread_mutex_lock(&m); pthread_mutex_lock(&m);", ""),
        ("for (;;) x++;", "locked(5);"),
    ] {
        let program = format!(
            "#include <signal.h>\n#include <sys/wait.h>\n{LOCKED}static void *work(void \
                *argument) {{ locked(1000); {rest} return NULL; }}\n\
             int main(void) {{ PRINT(m); fflush(stdout); pid_t parent = getpid();\n\
             if (!fork()) {{ usleep(2500000); kill(parent, SIGKILL); _exit(0); }}\n\
             pthread_t thread; pthread_create(&thread, NULL, work, NULL); {after} \
             pthread_join(thread, NULL); return 0; }}"
        );
        let run = run(&program, &[], "rate=1");
        let status = run.output.as_ref().expect("it ran").status;
        assert!(status.code() == Some(137) || status.signal() == Some(9), "{rest}: {status:?}");
        assert!(
            run.error.as_ref().expect("no end record").contains("end"),
            "{rest}: {:?}",
            run.error
        );
        let (lock, more) = (run.lock("m"), if after.is_empty() { 0 } else { 5 });
        assert_eq!(run.sections.len(), 1000 + more, "{rest}");
        // The computing thread never publishes its last counts.
        let counted = if rest.starts_with("for") { 5..=1005 } else { 1000..=1000 };
        assert!(counted.contains(&lock.acquisitions), "{rest}: {lock:?}");
    }
}

#[test]
fn program_ended_by_own_signal_keeps_all_sections() {
    if skipped() {
        return;
    }
    for (ending, signal, has_end) in [
        ("pthread_mutex_lock(&m); abort();", 6, true),
        ("signal(SIGABRT, SIG_IGN); raise(SIGABRT); locked(20); abort();", 6, true),
        ("kill(getpid(), SIGKILL); pause();", 9, true),
        ("raise(SIGTERM);", 15, false),
        ("union sigval value = { 0 }; sigqueue(getpid(), SIGINT, value); pause();", 2, false),
    ] {
        let program = format!(
            "#include <signal.h>\n{LOCKED}int main(void) {{ PRINT(m); fflush(stdout); \
                locked(100); {ending} }}"
        );
        let run = run(&program, &[], "rate=1");
        let status = run.output.as_ref().expect("it ran").status;
        assert!(
            status.code() == Some(128 + signal) || status.signal() == Some(signal),
            "{ending}: {status:?}"
        );
        assert_eq!(run.error.is_none(), has_end, "{ending}: {:?}", run.error);
        let all = if ending.contains("20") { 120 } else { 100 };
        assert_eq!((run.sections.len() as u64, run.lock("m").acquisitions), (all, all), "{ending}");
    }
}

#[test]
fn heap_lock_has_its_allocation_record() {
    if skipped() {
        return;
    }
    // No section touches the allocation.
    let program = "int main(void) { pthread_mutex_t *m = malloc(1000); pthread_mutex_init(m + 2, \
        NULL); pthread_mutex_lock(m + 2); pthread_mutex_unlock(m + 2); PRINT(*m); return 0; }";
    let run = run(program, &[], "");
    assert!(
        run.allocations
            .iter()
            .any(|(address, size, site)| (*address, *size) == (run.address("*m"), 1000)
                && *site != 0),
        "{run:x?}"
    );
}

#[test]
fn exit_during_other_sections_ends_stream() {
    if skipped() {
        return;
    }
    let program = format!(
        "{LOCKED}static void *work(void *argument) {{ for (;;) locked(1); return NULL; }}\n\
         int main(void) {{ pthread_t threads[4]; for (int i = 0; i < 4; i++) \
         pthread_create(&threads[i], NULL, work, NULL);\n\
         usleep(100000); exit(5); }}"
    );
    for _ in 0..5 {
        let run = run(&program, &[], "rate=2");
        assert_eq!(run.output.as_ref().expect("it ran").status.code(), Some(5), "{}", run.stderr());
        assert_eq!(run.error, None);
        assert!(run.end.contains("\"exit_status\":5") && !run.sections.is_empty(), "{}", run.end);
    }
}

#[test]
fn forked_child_is_not_followed() {
    if skipped() {
        return;
    }
    let program = format!(
        "#include <sys/wait.h>\n{LOCKED}int main(void) {{ locked(50); int status;\n\
         pthread_mutex_lock(&m); pid_t child = fork(); if (!child) {{ x++; \
         pthread_mutex_unlock(&m); locked(1000); _exit(3); }}\n\
         x++; pthread_mutex_unlock(&m); waitpid(child, &status, 0); printf(\"status=%d\\n\", \
         WEXITSTATUS(status)); locked(49); PRINT(m); return 0; }}"
    );
    let run = run(&program, &[], "rate=1");
    assert_eq!(
        (run.error.as_deref(), run.printed("status").as_str()),
        (None, "3"),
        "{}",
        run.stderr()
    );
    let lock = run.lock("m");
    assert_eq!((lock.acquisitions, lock.sampled), (100, 100));
    let (plain, forking): (Vec<_>, Vec<_>) =
        run.sections.iter().partition(|section| section.words.len() == 1);
    assert!(
        (plain.len(), forking.len()) == (99, 1)
            && forking[0].flags == unconvoy_trace_stream::flag::IO
    );
    assert!(run.end.contains("\"forks_not_followed\":1"), "{}", run.end);
}

#[test]
fn exec_ends_stream_failed_exec_does_not() {
    if skipped() {
        return;
    }
    let program = format!(
        "{LOCKED}int main(int count, char **arguments) {{ locked(10); execl(\"/nowhere/nothing\", \
            \"x\", NULL); locked(10);\n\
         execl(\"/bin/sh\", \"sh\", \"-c\", \"echo replaced; exit 4\", NULL); return 1; }}"
    );
    let run = run_with(&program, &[], "rate=1", &["an argument, with a comma", "and \"quotes\""]);
    assert_eq!((run.error.as_deref(), run.stdout().as_str()), (None, "replaced\n"));
    assert_eq!(run.output.as_ref().expect("it ran").status.code(), Some(4));
    assert_eq!(run.locks[0].acquisitions, 20);
    assert!(run.end.contains("exec"), "{}", run.end);
    assert!(
        run.context.contains(r#","an argument, with a comma","and \"quotes\""]"#),
        "{}",
        run.context
    );
}

#[test]
fn lock_at_unmapped_address_faults_in_program() {
    if skipped() {
        return;
    }
    // The program's own handler sees the fault, as without the plug-in.
    let program = "#include <signal.h>\n#include <setjmp.h>\nstatic sigjmp_buf back; static void \
        *where;\n\
        static void handler(int number, siginfo_t *info, void *context) { where = info->si_addr; \
        siglongjmp(back, 1); }\n\
        int main(void) { struct sigaction action = { .sa_sigaction = handler, .sa_flags = \
        SA_SIGINFO }; sigaction(SIGSEGV, &action, NULL);\n\
        if (!sigsetjmp(back, 1)) pthread_mutex_lock((pthread_mutex_t *)4096); \
        printf(\"where=%p\\n\", where);\n\
        static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static long x; for (int i = 0; i < \
        10; i++) { pthread_mutex_lock(&m); x++; pthread_mutex_unlock(&m); }\n\
        PRINT(m); PRINT(x); return 0; }";
    let run = run(program, &[], "rate=1");
    assert_eq!(run.printed("where"), "0x1010", "{}", run.stderr());
    assert_eq!(run.lock("m").sampled, 10);
}

#[test]
fn longjmp_out_of_section_and_locking_is_survived() {
    if skipped() {
        return;
    }
    // The program jumps out of a section, and out of a signal handler that interrupts a wait for a
    // lock: the locking function then never returns. (A cancellation there is fatal under QEMU 7.2
    // even without the plug-in.)
    let program = "#include <setjmp.h>\n#include <signal.h>\nstatic pthread_mutex_t m = \
        PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER; static volatile long x;\n\
        static jmp_buf back; static sigjmp_buf out; static __attribute__((noinline)) void \
        leaves(void) { pthread_mutex_lock(&m); x = 1; longjmp(back, 1); }\n\
        static void handler(int number) { siglongjmp(out, 1); }\n\
        static void *work(void *argument) { signal(SIGALRM, handler); alarm(1); if \
        (!sigsetjmp(out, 1)) pthread_mutex_lock(&held);\n\
        for (int i = 0; i < 10; i++) { pthread_mutex_lock(&m); x = 4; pthread_mutex_unlock(&m); } \
        return NULL; }\n\
        int main(void) { if (!setjmp(back)) leaves(); x = 2; pthread_mutex_unlock(&m);\n\
        for (int i = 0; i < 10; i++) { pthread_mutex_lock(&m); x = 3; pthread_mutex_unlock(&m); }\n\
        pthread_t thread; pthread_mutex_lock(&held); sigset_t set; sigemptyset(&set); \
        sigaddset(&set, SIGALRM);\n\
        pthread_create(&thread, NULL, work, NULL); pthread_sigmask(SIG_BLOCK, &set, NULL); \
        pthread_join(thread, NULL);\n\
        PRINT(m); PRINT(x); return 0; }";
    let run = run(program, &[], "rate=1");
    assert_eq!(
        (run.error.as_deref(), run.output.as_ref().expect("it ran").status.code()),
        (None, Some(0))
    );
    let lock = run.lock("m");
    assert_eq!((lock.acquisitions, lock.sampled), (21, 21));
    let sections = run.sections_of(lock);
    assert!(
        sections[1..].iter().all(|section| support::Run::words(section) == [run.address("x")]),
        "{sections:x?}"
    );
}

#[test]
fn sequential_threads_get_distinct_numbers() {
    if skipped() {
        return;
    }
    let program = format!(
        "{LOCKED}static void *work(void *argument) {{ locked(10); return NULL; }}\n\
         int main(void) {{ for (int i = 0; i < 300; i++) {{ pthread_t threads[4]; for (int k = 0; \
         k < 4; k++) pthread_create(&threads[k], NULL, work, NULL);\n\
         for (int k = 0; k < 4; k++) pthread_join(threads[k], NULL); }} PRINT(m); PRINT(x); \
         return 0; }}"
    );
    let run = run(&program, &[], "rate=1");
    let lock = run.lock("m");
    assert_eq!((lock.acquisitions, lock.sampled), (12_000, 12_000), "{}", run.end);
    assert!(
        run.sections_of(lock)
            .iter()
            .all(|section| support::Run::words(section) == [run.address("x")])
    );
    let threads: std::collections::BTreeSet<_> =
        run.sections.iter().map(|section| section.thread).collect();
    assert_eq!(threads.len(), 1200);
}

#[test]
fn interposed_lock_is_counted_once() {
    if skipped() {
        return;
    }
    // The program defines the functions itself and calls the C library's.
    let program = format!(
        "#include <dlfcn.h>\n{LOCKED}\
         int pthread_mutex_lock(pthread_mutex_t *lock) {{ static int (*real)(pthread_mutex_t *); \
         if (!real) real = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, \"pthread_mutex_lock\"); \
         return real(lock); }}\n\
         int pthread_mutex_unlock(pthread_mutex_t *lock) {{ static int (*real)(pthread_mutex_t \
         *); if (!real) real = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, \
         \"pthread_mutex_unlock\"); return real(lock); }}\n\
         int main(void) {{ locked(100); PRINT(m); PRINT(x); return 0; }}"
    );
    let run = run(&program, &["-rdynamic"], "rate=1");
    let lock = run.lock("m");
    assert_eq!((lock.acquisitions, lock.sampled), (100, 100), "{}", run.end);
    assert!(
        run.sections_of(lock)
            .iter()
            .all(|section| support::Run::words(section) == [run.address("x")])
    );
}

#[test]
fn bad_options_fail_with_one_line() {
    if skipped() {
        return;
    }
    for (options, complaint) in [
        ("", "pass out=FILE"),
        (",out=/nowhere/stream", "/nowhere/stream: No such file"),
        (",out=/dev/null,rate=0", "rate=0: expected a number from 1 to 1000000"),
        (",out=/dev/null,colour=red", "colour: unknown option"),
    ] {
        let argument = format!("{}{options}", plugin().display());
        let output = Command::new("qemu-x86_64")
            .args(["-plugin", &argument, "/bin/true"])
            .output()
            .expect("qemu");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success()
                && error.lines().next().unwrap_or_default().contains(complaint),
            "{error}"
        );
    }
}

#[test]
fn full_disk_does_not_stop_program() {
    if skipped() {
        return;
    }
    let argument = format!("{},out=/dev/full,rate=1", plugin().display());
    let output = Command::new("qemu-x86_64")
        .args(["-plugin", &argument, "/bin/echo", "works"])
        .output()
        .expect("qemu");
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"works\n"[..]));
}
