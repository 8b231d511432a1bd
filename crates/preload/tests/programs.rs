//! Real programs from Debian's packages that run to their end, with and without the library;
//! servers are in `services.rs` and `databases.rs`. `packages.txt` lists the packages. A missing
//! program is skipped with a message.

mod support;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use support::{Finished, installed, plain, preloaded, run};

/// Neither random nor constant: words from a small alphabet, so that compressors have work.
fn text(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut out = Vec::with_capacity(bytes + 16);
    while out.len() < bytes {
        // xorshift64 (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let word = state % 4096;
        out.extend_from_slice(format!("{word:x}{} ", word * word % 977).as_bytes());
    }
    out.truncate(bytes);
    out
}

/// Runs `command` with `input` as its standard input.
#[track_caller]
fn filter(command: &mut Command, input: &Path) -> Finished {
    run(command.stdin(Stdio::from(File::open(input).expect("the input exists"))))
}

/// Compresses with and without the library, compares the bytes, and expands them to the original.
/// The programs cut their input into blocks of a fixed size, so their output does not depend on
/// timing.
fn round_trip(program: &str, package: &str, compress: &[&str], expand: &[&str]) {
    let Some(path) = installed(program, package) else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let input = directory.path().join("input");
    let original = text(6 << 20);
    fs::write(&input, &original).expect("a temporary file");
    let without = filter(plain(&path).args(compress), &input).success(program);
    let with = filter(preloaded(&path).args(compress), &input).success(program);
    assert!(without.stdout.len() > 1000 && without.stdout.len() < original.len());
    assert!(without.stdout == with.stdout, "{program} {compress:?} compresses to different bytes");
    assert_eq!(without.stderr, with.stderr, "{program} {compress:?}");
    let compressed = directory.path().join("compressed");
    fs::write(&compressed, &with.stdout).expect("a temporary file");
    let expanded = filter(preloaded(&path).args(expand), &compressed).success(program);
    assert!(expanded.stdout == original, "{program} {expand:?} does not restore the input");
}

#[test]
#[ignore = "make test-all: needs programs of others"]
fn xz_round_trip_restores_input() {
    round_trip("xz", "xz-utils", &["-1", "-T4", "--block-size=524288", "-c"], &["-d", "-T4", "-c"]);
}

#[test]
#[ignore = "make test-all: needs programs of others"]
fn pigz_round_trip_restores_input() {
    round_trip("pigz", "pigz", &["-3", "-p", "4", "-c"], &["-d", "-p", "4", "-c"]);
}

#[test]
#[ignore = "make test-all: needs programs of others"]
fn pbzip2_round_trip_restores_input() {
    round_trip("pbzip2", "pbzip2", &["-1", "-p4", "-c"], &["-d", "-p4", "-c"]);
}

#[test]
#[ignore = "make test-all: needs programs of others"]
fn zstd_round_trip_restores_input() {
    round_trip("zstd", "zstd", &["-3", "-T4", "-B524288", "-q", "-c"], &["-d", "-T4", "-q", "-c"]);
}

/* ---- interpreters and databases ---- */

/// The script uses threads, queues, conditions, semaphores, timed waits and a pool. Every wait of
/// CPython ends in pthread functions, and the interpreter lock is a mutex with a condition.
const PYTHON: &str = r#"
import concurrent.futures, hashlib, queue, sys, threading, time
sys.setswitchinterval(0.0005)
q, results, lock = queue.Queue(maxsize=7), [], threading.Lock()
def worker():
    while (item := q.get()) is not None:
        digest = hashlib.sha256(str(item).encode() * 500).hexdigest()
        with lock:
            results.append((item, digest))
        q.task_done()
threads = [threading.Thread(target=worker) for _ in range(6)]
for t in threads: t.start()
for i in range(1500): q.put(i)
q.join()
for t in threads: q.put(None)
for t in threads: t.join()
print(len(results), hashlib.sha256(repr(sorted(results)).encode()).hexdigest())
barrier, turns = threading.Barrier(5), []
def party():
    for i in range(50):
        barrier.wait()
        if i % 10 == 0: turns.append(i)
threads = [threading.Thread(target=party) for _ in range(5)]
for t in threads: t.start()
for t in threads: t.join()
print(sorted(turns))
event, condition = threading.Event(), threading.Condition()
print(event.wait(0.02), condition.acquire(timeout=1), condition.wait(0.02))
condition.release()
semaphore, most, inside = threading.BoundedSemaphore(3), 0, 0
def limited(n):
    global most, inside
    with semaphore:
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.0005)
        with lock: inside -= 1
    return n * n
with concurrent.futures.ThreadPoolExecutor(12) as pool:
    print(sum(pool.map(limited, range(200))), most <= 3)
"#;

/// One database, four writers and four readers, each with its own connection; then SQLite's
/// integrity check.
const SQLITE: &str = r#"
import sqlite3, sys, threading
path = sys.argv[1]
def connect(): return sqlite3.connect(path, timeout=60, isolation_level=None)
db = connect()
db.execute("pragma journal_mode=wal")
db.execute("pragma synchronous=off")
db.execute("create table t(writer integer, n integer, value text)")
errors = []
def write(w):
    try:
        c = connect()
        for n in range(0, 400, 20):
            c.execute("begin immediate")
            for k in range(n, n + 20):
                c.execute("insert into t values (?, ?, ?)", (w, k, "v" * (k % 97)))
            c.execute("commit")
    except Exception as e: errors.append(repr(e))
def read():
    try:
        c = connect()
        for _ in range(40):
            # A writer adds 20 rows per transaction, so readers see multiples of 20.
            for _, n in c.execute("select writer, count(*) from t group by writer"):
                if n % 20: errors.append(f"{n} rows")
    except Exception as e: errors.append(repr(e))
threads = [threading.Thread(target=write, args=(w,)) for w in range(4)]
threads += [threading.Thread(target=read) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(errors, db.execute("select count(*), sum(n), sum(length(value)) from t").fetchall())
print(db.execute("pragma integrity_check").fetchall())
# One shared connection in SQLite's serialized mode, which contends SQLite's own mutexes.
shared = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
sums = []
def ask():
    question = "select sum(n) from t where writer = ?"
    sums.append(sum(shared.execute(question, (i % 4,)).fetchone()[0] for i in range(100)))
threads = [threading.Thread(target=ask) for _ in range(6)]
for t in threads: t.start()
for t in threads: t.join()
print(sums)
"#;

#[track_caller]
fn python(script: &str, needs_file: bool) {
    let Some(path) = installed("python3", "python3") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let outcome = |mut command: Command, name: &str| {
        command.args(["-I", "-c", script]);
        if needs_file {
            command.arg(directory.path().join(name));
        }
        run(&mut command).success("python3")
    };
    let without = outcome(plain(&path), "without");
    let with = outcome(preloaded(&path), "with");
    assert_eq!(without.text(), with.text());
    assert_eq!(without.stderr, with.stderr);
}

#[test]
#[ignore = "make test-all: needs programs of others"]
fn python_threads_give_same_output() {
    python(PYTHON, false);
}

#[test]
#[ignore = "make test-all: needs programs of others"]
fn sqlite_threads_keep_database_sound() {
    python(SQLITE, true);
}

/// The shell of SQLite: one thread, but its library takes a lock in every call.
#[test]
#[ignore = "make test-all: needs programs of others"]
fn sqlite_shell_gives_same_output() {
    let Some(path) = installed("sqlite3", "sqlite3") else {
        return;
    };
    let script = "with recursive c(n) as (select 1 union all select n + 1 from c where n < 20000) \
                  select count(*), sum(n * n), group_concat(n) like '1,2,3,%' from c;";
    let without = run(plain(&path).args([":memory:", script])).success("sqlite3");
    let with = run(preloaded(&path).args([":memory:", script])).success("sqlite3");
    assert_eq!(without.text(), "20000|2666866670000|1\n");
    assert_eq!(with.text(), without.text());
    assert_eq!(with.stderr, without.stderr);
}

/* ---- RocksDB ---- */

/// Fills a database, reads it with many threads, and runs RocksDB's own checksum verification.
#[test]
#[ignore = "make test-all: needs programs of others"]
fn rocksdb_threads_keep_checksums() {
    let Some(path) = installed("db_bench", "rocksdb-tools") else {
        return;
    };
    const N: usize = 20000;
    let outcome = |bench: &dyn Fn() -> Command| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let go = |benchmarks: &str, threads: &str, fresh: bool| {
            let finished = run(bench()
                .arg(format!("--db={}", directory.path().display()))
                .arg(format!("--wal_dir={}", directory.path().display()))
                .arg(format!("--benchmarks={benchmarks}"))
                .arg(format!("--use_existing_db={}", if fresh { 0 } else { 1 }))
                .arg(format!("--num={N}"))
                .args(["--seed=42", "--value_size=100", "--write_buffer_size=262144"])
                .args(["--max_background_jobs=4", "--compression_type=none", threads]))
            .success(benchmarks);
            finished.text()
        };
        go("fillseq", "--threads=1", true);
        // The threads' counts are equal, and RocksDB prints one of them.
        let read = go("readrandom,readseq,verifychecksum", "--threads=4", false);
        let found: Vec<String> = read
            .lines()
            .filter_map(|line| line.split_once('(').map(|(_, rest)| rest.to_owned()))
            .filter(|rest| rest.contains(" found)"))
            .collect();
        // Writers, group commits, flushes and compactions at once; then the checksums again.
        let mixed = go(
            "overwrite,compact,verifychecksum,readwhilewriting,verifychecksum",
            "--threads=4",
            false,
        );
        let checked = mixed.lines().filter(|line| line.starts_with("verifychecksum")).count();
        (found, checked)
    };
    let without = outcome(&|| plain(&path));
    let with = outcome(&|| preloaded(&path));
    assert_eq!(without.0, [format!("{N} of {N} found)")], "every key is found");
    assert_eq!(without.1, 2, "both verifications ran");
    assert_eq!(without, with);
}
