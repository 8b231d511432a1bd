//! Exact address sets of small programs, with every section sampled.

mod support;

use support::{Run, run, skipped};
use unconvoy_trace_stream::flag;

/// A C program with two threads that run `body`, where `long self` is 0 or 1. `print` prints
/// addresses at the end of `main`.
fn two_threads(globals: &str, body: &str, print: &str) -> String {
    format!(
        "{globals}\nstatic void *work(void *argument) {{ long self = (long)argument; {body} \
            return NULL; }}\n\
         int main(void) {{ pthread_t threads[2];\n\
         for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, (void *)i);\n\
         for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);\n{print}\nreturn 0; }}"
    )
}

fn complete(run: &Run) {
    assert_eq!(run.error, None, "{}", run.stderr());
    assert!(run.end.contains("\"lost\":0"), "{}", run.end);
    assert!(run.end.contains("\"notes\":[]"), "{}", run.end);
    assert!(run.end.contains("\"unmatched_unlocks\":0"), "{}", run.end);
}

#[test]
fn disjoint_elements_give_one_word_per_thread() {
    if skipped() {
        return;
    }
    let program = two_threads(
        "static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static long a[16];",
        "for (int i = 0; i < 500; i++) { pthread_mutex_lock(&m); a[self * 8]++; \
            pthread_mutex_unlock(&m); }",
        "PRINT(m); PRINT(a);",
    );
    let run = run(&program, &[], "rate=1");
    complete(&run);
    let (lock, array) = (run.lock("m"), run.address("a"));
    assert_eq!((lock.acquisitions, lock.sampled), (1000, 1000));
    let mut threads = std::collections::BTreeMap::<_, std::collections::BTreeSet<u64>>::new();
    for section in run.sections_of(lock) {
        assert_eq!((section.words.len(), section.flags), (1, 0), "{section:x?}");
        let (address, (read, written, reader, writer)) = section.words.first_key_value().unwrap();
        assert_eq!((*read, *written), (0xff, 0xff));
        for pc in [reader, writer] {
            let module = run
                .modules
                .iter()
                .find(|(base, end, _)| (base..end).contains(&pc))
                .expect("a module");
            assert!(module.2.ends_with("program"));
        }
        threads.entry(section.thread).or_default().insert(*address);
    }
    let sets: Vec<_> =
        threads.into_values().map(|set| set.into_iter().collect::<Vec<_>>()).collect();
    assert!(sets == [[array], [array + 64]] || sets == [[array + 64], [array]], "{sets:x?}");
    assert!(
        run.context.contains("\"source\":\"qemu-user\"")
            && run.context.contains("program\"],\"rate\":1,")
    );
}

#[test]
fn shared_counter_is_in_every_section() {
    if skipped() {
        return;
    }
    let program = two_threads(
        "static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static long counter;",
        "for (int i = 0; i < 500; i++) { pthread_mutex_lock(&m); counter++; \
            pthread_mutex_unlock(&m); }",
        "PRINT(m); PRINT(counter); printf(\"total=%ld\\n\", counter);",
    );
    let run = run(&program, &[], "rate=1");
    complete(&run);
    assert_eq!(run.printed("total"), "1000");
    let sections = run.sections_of(run.lock("m"));
    assert_eq!(sections.len(), 1000);
    assert!(sections.iter().all(|section| Run::words(section) == [run.address("counter")]));
    // Both threads contribute.
    assert!(sections.iter().any(|section| section.thread != sections[0].thread));
}

#[test]
fn access_under_nested_locks_is_in_both_sections() {
    if skipped() {
        return;
    }
    let program = "static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER, inner = \
        PTHREAD_MUTEX_INITIALIZER;\n\
        static long before, within, after;\n\
        int main(void) { for (int i = 0; i < 3; i++) {\n\
        pthread_mutex_lock(&outer); before = 1; pthread_mutex_lock(&inner); within = 1; \
        pthread_mutex_unlock(&inner); after = 1;\n\
        pthread_mutex_unlock(&outer); }\n\
        PRINT(outer); PRINT(inner); PRINT(before); PRINT(within); PRINT(after); return 0; }";
    let run = run(program, &[], "rate=1");
    complete(&run);
    let mut outer = ["before", "within", "after"].map(|name| run.address(name));
    outer.sort();
    assert_eq!(run.sections_of(run.lock("outer")).len(), 3);
    for section in run.sections_of(run.lock("outer")) {
        assert_eq!(Run::words(section), outer, "the words of neither lock");
        assert!(section.words.values().all(|(read, written, ..)| (*read, *written) == (0, 0xff)));
    }
    for section in run.sections_of(run.lock("inner")) {
        assert_eq!(Run::words(section), [run.address("within")]);
    }
}

#[test]
fn failed_trylock_starts_no_section() {
    if skipped() {
        return;
    }
    // The main thread holds the lock while the other tries. The other's accesses are in no section.
    let program = "static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static long mine, \
        others, later;\n\
        static void *work(void *argument) { int failed = 0; for (int i = 0; i < 10; i++) if \
        (pthread_mutex_trylock(&m)) { failed++; others++; }\n\
        printf(\"failed=%d\\n\", failed); return NULL; }\n\
        int main(void) { pthread_t thread; pthread_mutex_lock(&m); mine = 1;\n\
        pthread_create(&thread, NULL, work, NULL); pthread_join(thread, NULL); \
        pthread_mutex_unlock(&m);\n\
        if (pthread_mutex_trylock(&m) == 0) { later++; pthread_mutex_unlock(&m); }\n\
        PRINT(m); PRINT(mine); PRINT(others); PRINT(later); return 0; }";
    let run = run(program, &[], "rate=1");
    complete(&run);
    assert_eq!(run.printed("failed"), "10");
    let lock = run.lock("m");
    assert_eq!((lock.acquisitions, lock.sampled), (2, 2));
    let sections = run.sections_of(lock);
    assert!(sections[0].words.contains_key(&run.address("mine")));
    assert_eq!(Run::words(sections[1]), [run.address("later")]);
    assert!(run.sections.iter().all(|section| !section.words.contains_key(&run.address("others"))));
}

#[test]
fn condition_wait_splits_section() {
    if skipped() {
        return;
    }
    let program = "static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static pthread_cond_t c \
        = PTHREAD_COND_INITIALIZER;\n\
        static long before, ready, after;\n\
        static void *work(void *argument) { pthread_mutex_lock(&m); ready = 1; \
        pthread_cond_signal(&c); pthread_mutex_unlock(&m); return NULL; }\n\
        int main(void) { pthread_t thread; pthread_mutex_lock(&m); pthread_create(&thread, NULL, \
        work, NULL); before = 1;\n\
        while (!ready) pthread_cond_wait(&c, &m);\n\
        after = 1; pthread_mutex_unlock(&m); pthread_join(thread, NULL);\n\
        PRINT(m); PRINT(c); PRINT(before); PRINT(ready); PRINT(after); return 0; }";
    let run = run(program, &[], "rate=1");
    complete(&run);
    let lock = run.lock("m");
    assert_eq!((lock.acquisitions, lock.sampled), (3, 3));
    let sections = run.sections_of(lock);
    let [before, ready, after, c] = ["before", "ready", "after", "c"].map(|name| run.address(name));
    assert_eq!(sections[0].flags & flag::WAITED, flag::WAITED);
    assert!(sections[0].words.contains_key(&before) && !sections[0].words.contains_key(&after));
    assert_eq!(
        (Run::words(sections[1]), sections[1].flags),
        (vec![ready], 0),
        "no word of the condition variable"
    );
    let mut last = [ready, after];
    last.sort();
    assert_eq!((Run::words(sections[2]), sections[2].flags), (last.to_vec(), 0));
    assert!(
        run.sections
            .iter()
            .all(|section| section.words.keys().all(|word| !(c..c + 48).contains(word)))
    );
}

#[test]
fn reinitialised_lock_is_another_incarnation() {
    if skipped() {
        return;
    }
    let program = "static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static long x;\n\
        static void *zeroed(void) { return memset(malloc(sizeof m), 0, sizeof m); }\n\
        static void once(pthread_mutex_t *lock) { pthread_mutex_lock(lock); x++; \
        pthread_mutex_unlock(lock); }\n\
        int main(void) { once(&m); once(&m); pthread_mutex_destroy(&m); pthread_mutex_init(&m, \
        NULL); once(&m);\n\
        pthread_mutex_t *heap = zeroed(); printf(\"heap=%p\\n\", (void *)heap); once(heap); \
        free(heap);\n\
        long *reused = zeroed(); printf(\"reused=%p\\n\", (void *)reused); \
        pthread_mutex_lock(&m); reused[1] = 1; pthread_mutex_unlock(&m); free(reused);\n\
        heap = zeroed(); printf(\"again=%p\\n\", (void *)heap); once(heap);\n\
        PRINT(m); return 0; }";
    let run = run(program, &[], "rate=1");
    complete(&run);
    let locks = run.locks_at(run.address("m"));
    let lives: Vec<_> =
        locks.iter().map(|lock| (lock.incarnation, lock.acquisitions, lock.sampled)).collect();
    assert_eq!(lives, [(0, 2, 2), (1, 2, 2)]);
    // Freed memory holds no lock: its next use is recorded, and a new lock there is another lock.
    let heap = run.address("heap");
    assert_eq!((run.address("reused"), run.address("again")), (heap, heap));
    let lives: Vec<_> =
        run.locks_at(heap).iter().map(|lock| (lock.incarnation, lock.acquisitions)).collect();
    assert_eq!(lives, [(0, 1), (1, 1)]);
    assert_eq!(Run::words(run.sections_of(locks[1])[1]), [heap + 8]);
}

#[test]
fn section_with_io_is_flagged() {
    if skipped() {
        return;
    }
    let program = "#include <sched.h>\nstatic pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; \
        static long x;\n\
        int main(void) { pthread_mutex_lock(&m); x = 1; pthread_mutex_unlock(&m);\n\
        pthread_mutex_lock(&m); (void)!write(1, \"inside\\n\", 7); pthread_mutex_unlock(&m);\n\
        pthread_mutex_lock(&m); sched_yield(); x = 1; pthread_mutex_unlock(&m);\n\
        PRINT(m); return 0; }";
    let run = run(program, &[], "rate=1");
    complete(&run);
    assert!(run.stdout().starts_with("inside\n"));
    let flags: Vec<_> =
        run.sections_of(run.lock("m")).iter().map(|section| section.flags).collect();
    assert_eq!(flags, [0, flag::IO, 0]);
}

#[test]
fn recursive_lock_is_one_section() {
    if skipped() {
        return;
    }
    let program = "static pthread_mutex_t m = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP; static long \
        a, b, c;\n\
        int main(void) { for (int i = 0; i < 2; i++) { pthread_mutex_lock(&m); a = 1; \
        pthread_mutex_lock(&m); b = 1; pthread_mutex_unlock(&m);\n\
        c = 1; pthread_mutex_unlock(&m); } PRINT(m); PRINT(a); PRINT(b); PRINT(c); return 0; }";
    let run = run(program, &[], "rate=1");
    complete(&run);
    let lock = run.lock("m");
    assert_eq!((lock.acquisitions, lock.sampled, lock.contended), (2, 2, 0));
    let mut words = ["a", "b", "c"].map(|name| run.address(name));
    words.sort();
    assert!(run.sections_of(lock).iter().all(|section| Run::words(section) == words));
}

#[test]
fn byte_accesses_have_exact_masks() {
    if skipped() {
        return;
    }
    let program = "static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static _Alignas(64) \
        volatile struct { char bytes[8]; char wide[16]; } s;\n\
        int main(void) { pthread_mutex_lock(&m); s.bytes[3] = 1; (void)s.bytes[5]; *(volatile int \
        *)&s.wide[6] = 1; pthread_mutex_unlock(&m);\n\
        PRINT(m); PRINT(s); return 0; }";
    let run = run(program, &[], "rate=1");
    complete(&run);
    let s = run.address("s");
    let sections = run.sections_of(run.lock("m"));
    let masks: Vec<_> = sections[0]
        .words
        .iter()
        .map(|(word, (read, written, ..))| (*word, *read, *written))
        .collect();
    assert_eq!(masks, [(s, 1 << 5, 1 << 3), (s + 8, 0, 0xc0), (s + 16, 0, 0x03)]);
}

#[test]
fn own_stack_is_excluded_other_stack_is_recorded() {
    if skipped() {
        return;
    }
    let program = "static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;\n\
        static void *work(void *argument) { volatile long *of_main = argument; volatile long \
        own[4]; own[0] = 0;\n\
        pthread_mutex_lock(&m); own[1] = 1; *of_main = 2; pthread_mutex_unlock(&m); return NULL; \
        }\n\
        int main(void) { pthread_t thread; volatile long local = 0; pthread_mutex_lock(&m); local \
        = 1; pthread_mutex_unlock(&m);\n\
        pthread_create(&thread, NULL, work, (void *)&local); pthread_join(thread, NULL);\n\
        PRINT(m); PRINT(local); return 0; }";
    let run = run(program, &[], "rate=1");
    complete(&run);
    let sections = run.sections_of(run.lock("m"));
    assert_eq!(Run::words(sections[0]), []);
    assert_eq!(Run::words(sections[1]), [run.address("local")]);
}

#[test]
fn heap_beside_a_stack_from_malloc_is_recorded() {
    if skipped() {
        return;
    }
    let program = "static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static volatile long *x;\n\
        static void *work(void *unused) { volatile long own[4];\n\
        pthread_mutex_lock(&m); own[1] = 1; *x = 2; pthread_mutex_unlock(&m); return unused; }\n\
        int main(void) { pthread_t thread; pthread_attr_t attr; x = malloc(8); char *stack = \
        malloc(1 << 16);\n\
        pthread_attr_init(&attr); pthread_attr_setstack(&attr, stack, 1 << 16);\n\
        pthread_create(&thread, &attr, work, NULL); pthread_join(thread, NULL);\n\
        PRINT(m); PRINT(x); PRINT(*x); return 0; }";
    let run = run(program, &[], "rate=1");
    complete(&run);
    let words = Run::words(run.sections_of(run.lock("m"))[0]);
    assert_eq!(words, [run.address("x"), run.address("*x")]);
}

#[test]
fn read_write_and_spin_locks_are_recorded() {
    if skipped() {
        return;
    }
    let program = "static pthread_rwlock_t w = PTHREAD_RWLOCK_INITIALIZER; static \
        pthread_spinlock_t s; static volatile long x; static int beside;\n\
        int main(void) { pthread_spin_init(&s, 0);\n\
        pthread_rwlock_rdlock(&w); (void)x; pthread_rwlock_unlock(&w); pthread_rwlock_wrlock(&w); \
        x = 1; pthread_rwlock_unlock(&w); pthread_rwlock_wrlock(&w); pthread_rwlock_unlock(&w);\n\
        pthread_spin_lock(&s); x = 2; beside++; pthread_spin_unlock(&s);\n\
        if (pthread_spin_trylock(&s) == 0) { x = 3; pthread_spin_unlock(&s); }\n\
        PRINT(w); PRINT(s); PRINT(x); return 0; }";
    let run = run(program, &[], "rate=1");
    complete(&run);
    let x = run.address("x");
    assert_eq!(run.lock("w").contended, 0, "a writer leaves a bit of the free lock set");
    let sections = run.sections_of(run.lock("w"));
    let masks: Vec<_> = sections
        .iter()
        .take(2)
        .map(|section| section.words[&x])
        .map(|(read, written, ..)| (read, written))
        .collect();
    assert_eq!((masks, sections.len()), (vec![(0xff, 0), (0, 0xff)], 3));
    let spin = run.lock("s");
    assert_eq!(spin.sampled, 2);
    assert!(run.sections_of(spin).iter().all(|section| section.words.contains_key(&x)));
}

#[test]
fn touched_allocations_are_recorded_with_call_site() {
    if skipped() {
        return;
    }
    let program = "static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;\n\
        int main(void) { long *small = malloc(80), *large = malloc(1 << 20), *zeroed = calloc(3, \
        40), *untouched = malloc(48);\n\
        long *moved = realloc(malloc(24), 400); void *aligned; if (posix_memalign(&aligned, 256, \
        100)) return 1;\n\
        for (int i = 0; i < 3; i++) { pthread_mutex_lock(&m); small[9] = 1; large[100000] = 1; \
        zeroed[14]++; moved[49] = 1; ((long *)aligned)[1] = 1; pthread_mutex_unlock(&m); }\n\
        printf(\"small=%p\\nlarge=%p\\nzeroed=%p\\nuntouched=%p\\nmoved=%p\\naligned=%p\\n\", \
        small, large, zeroed, untouched, moved, aligned); PRINT(main); return 0; }";
    let run = run(program, &[], "rate=1");
    complete(&run);
    let mut recorded: Vec<_> =
        run.allocations.iter().map(|(address, size, _)| (*address, *size)).collect();
    recorded.sort();
    let sizes =
        [("small", 80), ("large", 1 << 20), ("zeroed", 120), ("moved", 400), ("aligned", 100)];
    let mut expected = sizes.map(|(name, size)| (run.address(name), size));
    expected.sort();
    assert_eq!(recorded, expected, "each touched allocation once");
    let main = run.address("main");
    assert!(
        run.allocations.iter().all(|(.., site)| (main..main + 400).contains(site)),
        "{:x?}",
        run.allocations
    );
}

#[test]
fn oversized_set_is_cut_short() {
    if skipped() {
        return;
    }
    let program = "static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER; static volatile long \
        a[100];\n\
        int main(void) { pthread_mutex_lock(&m); for (int i = 0; i < 100; i++) a[i] = i; \
        pthread_mutex_unlock(&m);\n\
        pthread_mutex_lock(&m); a[0] = 1; pthread_mutex_unlock(&m); PRINT(m); return 0; }";
    let run = run(program, &[], "rate=1,words=20");
    complete(&run);
    let sections = run.sections_of(run.lock("m"));
    let sizes: Vec<_> =
        sections.iter().map(|section| (section.words.len(), section.flags)).collect();
    assert_eq!(sizes, [(20, flag::CUT_SHORT), (1, 0)]);
}
