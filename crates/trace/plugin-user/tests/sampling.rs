//! Tests that sections are sampled at the chosen rate, and that nothing else depends on the rate.

mod support;

use std::collections::BTreeMap;
use support::{Run, run, skipped};
use unconvoy_trace_stream::sampling::LONGEST;

/// Four threads take two locks in turn, a pattern that sampling every n-th section would alias
/// with.
const ALTERNATING: &str = "static pthread_mutex_t m[2] = { PTHREAD_MUTEX_INITIALIZER, \
    PTHREAD_MUTEX_INITIALIZER }; static long a[2][8];\n\
    static void *work(void *argument) { long self = (long)argument;\n\
    for (int i = 0; i < 20000; i++) { pthread_mutex_lock(&m[i % 2]); a[i % 2][self]++; \
    pthread_mutex_unlock(&m[i % 2]); } return NULL; }\n\
    int main(void) { pthread_t threads[4]; for (long i = 0; i < 4; i++) \
    pthread_create(&threads[i], NULL, work, (void *)i);\n\
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL); PRINT(m[0]); PRINT(m[1]); \
    PRINT(a[0]); PRINT(a[1]); return 0; }";

/// Runs the alternating threads, and checks the sections of both locks.
fn run_alternating(options: &str) -> Run {
    let run = run(ALTERNATING, &[], options);
    assert_eq!(run.error, None, "{}", run.stderr());
    for number in ["m[0]", "m[1]"] {
        let lock = run.lock(number);
        assert_eq!(lock.acquisitions, 40_000);
        let sections = run.sections_of(lock);
        assert_eq!(sections.len() as u64, lock.sampled);
        // A sampled section loses no access: it has the one word that it has when all are sampled.
        let array = run.address(&number.replace('m', "a"));
        for section in sections {
            let words = Run::words(section);
            assert!(words.len() == 1 && (array..array + 32).contains(&words[0]), "{section:x?}");
        }
    }
    run
}

#[test]
fn bursts_sample_a_tenth_of_each_lock() {
    if skipped() {
        return;
    }
    let run = run_alternating("");
    for number in ["m[0]", "m[1]"] {
        let lock = run.lock(number);
        // The last burst may lie beyond the last section.
        assert!(lock.sampled.abs_diff(4_000) <= u64::from(LONGEST), "{lock:?}");
    }
}

#[test]
fn independent_draws_sample_a_tenth_of_each_lock_and_thread() {
    if skipped() {
        return;
    }
    let run = run_alternating("sampling=independent");
    for number in ["m[0]", "m[1]"] {
        let lock = run.lock(number);
        assert!(within_five_deviations(lock.sampled, 40_000, 0.1), "{lock:?}");
        let mut threads = BTreeMap::<u32, u64>::new();
        for section in run.sections_of(lock) {
            *threads.entry(section.thread).or_default() += 1;
        }
        let is_tenth = |count: &u64| within_five_deviations(*count, 10_000, 0.1);
        assert!(threads.len() == 4 && threads.values().all(is_tenth), "{threads:?}");
    }
}

#[test]
fn same_seed_samples_same_sections() {
    if skipped() {
        return;
    }
    let program = "static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static volatile long \
        a[1000];\n\
        int main(void) { for (int i = 0; i < 1000; i++) { pthread_mutex_lock(&m); a[i] = 1; \
        pthread_mutex_unlock(&m); } PRINT(m); return 0; }";
    let sampled = |options| {
        let run = run(program, &[], options);
        run.sections.iter().map(Run::words).collect::<Vec<_>>()
    };
    let first = sampled("seed=7");
    assert!(!first.is_empty() && first.iter().all(|words| words.len() == 1), "{first:x?}");
    assert_eq!(first, sampled("seed=7"));
    assert_ne!(first, sampled("seed=8"));
}

/// Sections nest, and some begin with `trylock`. Each kind occurs both sampled and not sampled.
#[test]
fn nested_sections_are_complete_at_any_rate() {
    if skipped() {
        return;
    }
    let program = "static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER, inner = \
        PTHREAD_MUTEX_INITIALIZER; static long before, within, after, tried;\n\
        static __attribute__((noinline)) void both(void) { pthread_mutex_lock(&outer); before++; \
        pthread_mutex_lock(&inner); within++; pthread_mutex_unlock(&inner); after++; \
        pthread_mutex_unlock(&outer); }\n\
        static __attribute__((noinline)) void one(void) { if (pthread_mutex_trylock(&inner)) { \
        tried++; return; } within++; pthread_mutex_unlock(&inner); }\n\
        static void *work(void *argument) { for (int i = 0; i < 20000; i++) { both(); one(); } \
        return NULL; }\n\
        int main(void) { pthread_t threads[2]; for (int i = 0; i < 2; i++) \
        pthread_create(&threads[i], NULL, work, NULL);\n\
        for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL); PRINT(outer); PRINT(inner); \
        PRINT(before); PRINT(within); PRINT(after); printf(\"tried=%ld\\n\", tried); return 0; }";
    for options in ["rate=3", "rate=30"] {
        let run = run(program, &[], options);
        assert_eq!(run.error, None, "{}", run.stderr());
        let mut all = ["before", "within", "after"].map(|name| run.address(name));
        all.sort();
        let (outer, inner) = (run.lock("outer"), run.lock("inner"));
        assert!(run.sections_of(outer).iter().all(|section| Run::words(section) == all));
        assert!(
            run.sections_of(inner)
                .iter()
                .all(|section| Run::words(section) == [run.address("within")])
        );
        let tried: u64 = run.printed("tried").parse().expect("a number");
        assert_eq!((outer.acquisitions, inner.acquisitions), (40_000, 80_000 - tried));
    }
}

fn within_five_deviations(count: u64, of: u64, probability: f64) -> bool {
    let (of, count) = (of as f64, count as f64);
    (count - of * probability).abs() <= 5.0 * (of * probability * (1.0 - probability)).sqrt()
}
