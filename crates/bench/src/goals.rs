//! Goals of the locks: one table of limits for the benchmarks' verdicts and the report.

use unconvoy_measure::goal::{Bound, Goal};

macro_rules! goals {
    ($(
        $name:ident $id:literal $by:literal $bound:ident($limit:literal) $unit:literal
            $text:literal;
    )*) => {
        $(
            #[doc = $text]
            pub const $name: Goal = Goal {
                id: $id,
                text: $text,
                measured_by: $by,
                bound: Bound::$bound($limit),
                unit: $unit,
            };
        )*
        /// All goals, in the order of the report.
        pub const GOALS: &[Goal] = &[$($name),*];
    };
}

goals! {
    SATURATED "saturated-throughput" "counter" AtLeast(0.88) ""
        "Saturated, 2 to 64 threads: throughput of the default as a fraction of the serial limit, \
         at every count";
    FAIRNESS "saturated-fairness" "counter" AtLeast(0.9) ""
        "Saturated: Jain's fairness index over at least 2 s, at every count";
    LATENCY "saturated-latency" "counter" AtMost(100.0) "ms"
        "Saturated: 99.9th percentile of the time to acquire, within one sleep time-out";
    LONGEST_WAIT "saturated-longest-wait" "counter" AtMost(1.0) ""
        "Saturated: longest time to acquire in any round, relative to the bound in \
         explanation/correctness.md";
    CPU "saturated-cpu" "counter" AtMost(1.0) ""
        "Saturated: processor time per operation, relative to libc's adaptive mutex, at every \
         count";
    THINK_1_ADAPTIVE "think-1us-adaptive" "counter" AtLeast(0.97) ""
        "1 us of think time: throughput relative to libc's adaptive mutex, at every count";
    THINK_1_ROWS "think-1us-rows" "counter" AtLeast(0.97) ""
        "1 us of think time: throughput relative to every other row, at every count";
    THINK_10 "think-10us" "counter" AtLeast(0.97) ""
        "10 us of think time: throughput relative to libc's normal mutex, or within its spread, \
         at every count";
    TPMCS_200 "tpmcs-200" "counter" AtLeast(0.85) ""
        "TP-MCS with load control: part of its throughput at 2 threads that it keeps at 200 % load";
    TPMCS_3200 "tpmcs-3200" "counter" AtLeast(0.8) ""
        "TP-MCS with load control: part of its throughput at 2 threads that it keeps at 3200 % \
         load";
    NEAR_BEST "near-best" "hashtable" AtLeast(0.97) ""
        "Default pair: throughput relative to the best row, libc's included, at every count, of \
         any workload";
    RETENTION_200 "retention-200" "counter" AtLeast(0.95) ""
        "Default pair, counter and hash table: part of its own peak that it keeps at 200 % load";
    RETENTION_3200 "retention-3200" "counter" AtLeast(0.95) ""
        "Default pair, counter and hash table: part of its own peak that it keeps at 3200 % load";
    JAIN "jain-10s" "counter" AtLeast(0.9) ""
        "Default pair, counter and hash table: Jain's fairness index over at least 10 s, at every \
         count";
    NESTED_PAUSE "nested-pause" "nested" AtMost(1.0) "ms"
        "Nested locks: what the default adds to libc's 99th percentile of the time inside the \
         outer lock, at every count";
    NESTED_PAUSE_PARK "nested-pause-park" "nested" AtMost(1.0) "ms"
        "Nested locks: what load control adds to loiter+park's 99th percentile of the time inside \
         the outer lock, at every count";
    NESTED_WAIT "nested-wait" "nested" AtMost(1.0) "ms"
        "Nested locks: what the default adds to libc's 99th percentile of the wait for the outer \
         lock, at every count";
    PAIR_SINGLE "pair-single" "pair" AtMost(1.05) ""
        "One thread, process never had a second: cost of a lock/unlock pair relative to libc's \
         normal mutex";
    PAIR_THREADED "pair-threaded" "pair" AtMost(1.05) ""
        "One thread beside a sleeping one: cost of a lock/unlock pair relative to libc's normal \
         mutex";
    PINGPONG "condvar-pingpong" "condvar" AtLeast(1.0) ""
        "Condition variables, two threads that alternate: round trips relative to libc";
    BROADCAST "condvar-broadcast" "condvar" AtLeast(1.0) ""
        "Condition variables, a broadcast to 64 waiters: rounds relative to libc";
    READERS "rwlock-readers" "rwlock" AtLeast(1.0) ""
        "Reader-writer lock, 2 threads that mostly or only read: operations relative to libc";
    READRANDOM "leveldb-readrandom" "unconvoy compare" AtLeast(0.97) ""
        "LevelDB readrandom: throughput relative to libc, at every count";
    FILLRANDOM "leveldb-fillrandom" "unconvoy compare" AtLeast(0.97) ""
        "LevelDB fillrandom: throughput relative to libc, at every count";
    IDLE "idle-uncontended" "idle" AtMost(0.0) ""
        "Uncontended: controller starts, and wake-ups by unconvoy";
    GONE "idle-after-contention" "idle" AtMost(0.0) ""
        "After contention: controller threads left, and wake-ups by unconvoy";
    MUTEX_SIZE "memory-mutex" "memory" AtMost(40.0) "bytes"
        "Size of a mutex, which holds all its state: no more than the caller's pthread_mutex_t";
    THREAD_SIZE "memory-thread" "memory" AtMost(4.0) "KiB"
        "Private memory per contending thread, beyond libc's";
    READING "sensor-reading" "sensor" Below(100.0) "us"
        "One reading of the sensor at 64 threads, descriptors kept";
    CONTROLLER "controller-share" "sensor" Below(1.0) "%"
        "The controller's share of one processor at 64 contending threads, by the kernel's account";
    BUMP_FIRST "bump-first" "bump" AtMost(100.0) "us"
        "Bump test: time to the first reaction after the target changed";
    BUMP_STEADY "bump-steady" "bump" AtMost(1000.0) "us"
        "Bump test: time until the number of threads that are not asleep is steady";
    STEADINESS "steadiness" "steadiness" AtLeast(3.0) ""
        "A fixed target: standard deviation of the number of threads awake under load-triggered \
         backoff, relative to load control";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goal_ids_are_unique() {
        let mut ids: Vec<&str> = GOALS.iter().map(|goal| goal.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), GOALS.len());
    }
}
