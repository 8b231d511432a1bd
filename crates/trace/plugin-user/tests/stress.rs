//! Runs one busy program repeatedly to catch rare races. `UNCONVOY_STRESS=1000` sets the number of
//! runs.

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use support::{Run, compile, run_compiled, skipped};

/// Threads come and go; locks are nested, tried, waited for, created and destroyed; signals, forks
/// and system calls occur; the program ends in one of four ways.
const BUSY: &str = r#"
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
enum { THREADS = 6, ROUNDS = 300, LOCKS = 4 };
static pthread_mutex_t m[LOCKS] = { [0 ... LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER };
static volatile long a[LOCKS];
static pthread_mutex_t turns = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static volatile long turn;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static volatile long table[8];
static void handler(int number) { (void)number; }
static void *brief(void *argument)
{
    pthread_mutex_lock(&m[0]); a[0]++; pthread_mutex_unlock(&m[0]);
    return argument;
}
static void *work(void *argument)
{
    long me = (long)argument;
    for (int i = 0; i < ROUNDS; i++) {
        int one = (me + i) % (LOCKS - 1), two = one + 1;
        pthread_mutex_lock(&m[one]); a[one]++;
        pthread_mutex_lock(&m[two]); a[two]++;
        pthread_mutex_unlock(&m[two]); pthread_mutex_unlock(&m[one]);
        if (!pthread_mutex_trylock(&m[3])) { a[3]++; pthread_mutex_unlock(&m[3]); }
        pthread_rwlock_rdlock(&rw); long sum = table[i % 8]; pthread_rwlock_unlock(&rw);
        if (i % 16 == 0) {
            pthread_rwlock_wrlock(&rw); table[i % 8] = sum + 1; pthread_rwlock_unlock(&rw);
        }
        if (i % 20 == 0) {
            struct { pthread_mutex_t lock; long value[20]; } *own = calloc(1, sizeof *own);
            pthread_mutex_init(&own->lock, NULL);
            pthread_mutex_lock(&own->lock); own->value[me]++; pthread_mutex_unlock(&own->lock);
            pthread_mutex_destroy(&own->lock); free(own);
        }
        if (i % 50 == 7) {
            pthread_t other;
            if (!pthread_create(&other, NULL, brief, NULL)) pthread_join(other, NULL);
        }
        if (i % 60 == 9) { pthread_kill(pthread_self(), SIGUSR1); usleep(100); }
        if (me == 0 && i % 150 == 70) {
            pid_t child = fork();
            if (!child) {
                pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
                pthread_mutex_lock(&own);
                _exit(0);
            }
            waitpid(child, NULL, 0);
        }
        if (i % 30 == 0) {
            pthread_mutex_lock(&turns);
            while (turn % THREADS != me) pthread_cond_wait(&changed, &turns);
            turn++; pthread_cond_broadcast(&changed); pthread_mutex_unlock(&turns);
        }
    }
    return NULL;
}
static void *endless(void *argument) { for (;;) brief(argument); return NULL; }
int main(int count, char **arguments)
{
    pthread_t threads[THREADS], others[2];
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < LOCKS; i++) printf("m%d=%p\na%d=%p\n", i, (void *)&m[i], i, (void *)&a[i]);
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < LOCKS; i++) printf("n%d=%ld\n", i, a[i]);
    fflush(stdout);
    if (count > 1) {
        for (int i = 0; i < 2; i++) pthread_create(&others[i], NULL, endless, NULL);
        usleep(2000);
        switch (arguments[1][0]) {
        case 'e': exit(3);
        case 'a': abort();
        case 'k': kill(getpid(), SIGKILL);
        }
    }
    return 0;
}
"#;

#[test]
fn repeated_busy_runs_record_every_section() {
    if skipped() {
        return;
    }
    let runs: usize =
        std::env::var("UNCONVOY_STRESS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(8);
    let folder = tempfile::tempdir().expect("a folder");
    let program = compile(folder.path(), BUSY, &[]);
    for number in 0..runs {
        let (arguments, status): (&[&str], i32) =
            [(&[][..], 0), (&["e"], 3), (&["a"], 134), (&["k"], 137)][number % 4];
        let rate = [1, 2, 10][number % 3];
        let run =
            run_compiled(folder.path(), &program, &format!("rate={rate},seed={number}"), arguments);
        check(
            &run,
            rate,
            status,
            &format!("run {number}, {arguments:?}, rate {rate}: {}", run.stderr()),
        );
    }
}

fn check(run: &Run, rate: u64, expected: i32, which: &str) {
    use std::os::unix::process::ExitStatusExt;
    let status = run.output.as_ref().expect("it ran").status;
    let status = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    assert_eq!((status, run.error.as_deref()), (expected, None), "{which}");
    for number in 0..4 {
        let (lock, word) = (run.lock(&format!("m{number}")), run.address(&format!("a{number}")));
        let counted: u64 = run.printed(&format!("n{number}")).parse().expect("a number");
        // The threads that still run at the end use the first lock, and may not have published all
        // counts.
        let fits =
            if number == 0 { lock.acquisitions >= counted } else { lock.acquisitions == counted };
        assert!(fits, "{which}: {lock:?}, {counted}");
        let sections = run.sections_of(lock);
        if rate == 1 && number > 0 {
            assert_eq!((sections.len() as u64, lock.sampled), (counted, counted), "{which}");
        }
        for section in sections {
            // An outer section also touches the inner one's word.
            assert!(
                section.words.contains_key(&word) && section.words.len() <= 2,
                "{which}: {section:x?}"
            );
        }
    }
}
