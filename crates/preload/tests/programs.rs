//! Real programs from Debian's packages, driven by a real client or checked by themselves, with and
//! without the library. `packages.txt` lists what to install; a program that is not there is skipped
//! with a line that says so.

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Finished, LIMIT, Running, installed, plain, preloaded, run};

/// Neither random nor constant: words from a small alphabet, so that compressors have work to do.
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

/// `command` with `input` as its standard input.
#[track_caller]
fn filter(command: &mut Command, input: &Path) -> Finished {
    run(command.stdin(Stdio::from(File::open(input).expect("the input exists"))))
}

/// Compresses with and without the library, compares the bytes, and gets the input back. All of these
/// programs cut their input in blocks of a fixed size, so their output does not depend on timing.
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
    assert!(without.stdout == with.stdout, "{program} {compress:?} compresses to other bytes");
    assert_eq!(without.stderr, with.stderr, "{program} {compress:?}");
    let compressed = directory.path().join("compressed");
    fs::write(&compressed, &with.stdout).expect("a temporary file");
    let expanded = filter(preloaded(&path).args(expand), &compressed).success(program);
    assert!(expanded.stdout == original, "{program} {expand:?} gives back other bytes");
}

#[test]
fn xz() {
    round_trip("xz", "xz-utils", &["-1", "-T4", "--block-size=524288", "-c"], &["-d", "-T4", "-c"]);
}

#[test]
fn pigz() {
    round_trip("pigz", "pigz", &["-3", "-p", "4", "-c"], &["-d", "-p", "4", "-c"]);
}

#[test]
fn pbzip2() {
    round_trip("pbzip2", "pbzip2", &["-1", "-p4", "-c"], &["-d", "-p4", "-c"]);
}

#[test]
fn zstd() {
    round_trip("zstd", "zstd", &["-3", "-T4", "-B524288", "-q", "-c"], &["-d", "-T4", "-q", "-c"]);
}

/* ---- memcached ---- */

struct Memcached {
    running: Running,
    directory: tempfile::TempDir,
}

impl Memcached {
    fn start(command: &mut Command) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("socket");
        command.arg("-s").arg(&socket).args(["-t", "4", "-m", "64"]);
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "root"]);
        }
        let mut server = Memcached { running: Running::start(command), directory };
        let deadline = Instant::now() + LIMIT;
        while UnixStream::connect(server.socket()).is_err() {
            assert!(server.running.poll().is_none(), "memcached ended at once");
            assert!(Instant::now() < deadline, "memcached does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    fn socket(&self) -> std::path::PathBuf {
        self.directory.path().join("socket")
    }

    fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.socket()).expect("memcached listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
        Client { reader: BufReader::new(stream.try_clone().expect("a descriptor")), stream }
    }

    /// Asks the server to end, as its init script does.
    fn stop(self) -> Finished {
        self.running.signal(rustix::process::Signal::TERM);
        self.running.finish(LIMIT)
    }
}

struct Client {
    reader: BufReader<UnixStream>,
    stream: UnixStream,
}

impl Client {
    fn say(&mut self, words: &str) {
        self.stream.write_all(words.as_bytes()).expect("memcached reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("memcached answers");
        line.trim_end().to_owned()
    }

    fn get(&mut self, key: &str) -> Option<String> {
        self.say(&format!("get {key}\r\n"));
        let first = self.line();
        if first == "END" {
            return None;
        }
        assert!(first.starts_with(&format!("VALUE {key} ")), "get {key}: {first}");
        let value = self.line();
        assert_eq!(self.line(), "END");
        Some(value)
    }
}

const CONNECTIONS: usize = 8;
const KEYS: usize = 1000;

/// Eight connections set and get keys of their own and raise one counter together; the answer is
/// what the server says it did.
fn drive(server: &Memcached) -> Vec<String> {
    let mut first = server.connect();
    first.say("set counter 0 0 1\r\n0\r\n");
    assert_eq!(first.line(), "STORED", "before anybody raises it");
    std::thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let mut client = server.connect();
            scope.spawn(move || {
                for key in 0..KEYS {
                    let value = format!("value-{connection}-{}", key * 7919);
                    client.say(&format!("set k{connection}-{key} 0 0 {}\r\n{value}\r\n", value.len()));
                    assert_eq!(client.line(), "STORED");
                    client.say("incr counter 1\r\n");
                    assert!(client.line().parse::<usize>().is_ok());
                    // A key of a while ago, and one that never was.
                    let back = key / 2;
                    let expected = format!("value-{connection}-{}", back * 7919);
                    assert_eq!(client.get(&format!("k{connection}-{back}")), Some(expected));
                    assert_eq!(client.get("never"), None);
                }
            });
        }
    });
    let mut client = server.connect();
    let mut told = vec![format!("counter {:?}", client.get("counter"))];
    client.say("stats\r\n");
    loop {
        let line = client.line();
        if line == "END" {
            return told;
        }
        let counted = ["cmd_set", "get_hits", "get_misses", "curr_items", "total_items", "evictions", "threads"];
        if counted.iter().any(|name| line.starts_with(&format!("STAT {name} "))) {
            told.push(line);
        }
    }
}

#[test]
fn memcached_under_eight_clients() {
    let Some(path) = installed("memcached", "memcached") else {
        return;
    };
    let outcome = |command: &mut Command| {
        let server = Memcached::start(command);
        let told = drive(&server);
        (told, server.stop())
    };
    let (without, plain_end) = outcome(&mut plain(&path));
    let (with, end) = outcome(&mut preloaded(&path));
    assert_eq!(without, with);
    assert_eq!(with[0], format!("counter Some(\"{}\")", CONNECTIONS * KEYS));
    assert_eq!(end.status, plain_end.status, "{}", end.both());
    assert_eq!(end.stderr, plain_end.stderr);
}

/// libmemcached's own conformance client.
#[test]
fn memcached_under_memccapable() {
    let Some(server) = installed("memcached", "memcached") else {
        return;
    };
    let Some(client) = installed("memccapable", "libmemcached-tools") else {
        return;
    };
    let outcome = |command: &mut Command| {
        // It speaks TCP alone. A port that was free a moment ago is free now, but for bad luck.
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port()
            .to_string();
        command.args(["-l", "127.0.0.1", "-p", &port, "-U", "0", "-t", "4"]);
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "root"]);
        }
        let mut running = Running::start(command);
        let deadline = Instant::now() + LIMIT;
        while std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
            assert!(running.poll().is_none(), "memcached ended at once");
            assert!(Instant::now() < deadline, "memcached does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        let finished = run(plain(&client).args(["-h", "127.0.0.1", "-p", &port, "-a"]));
        (finished.text(), finished.status)
    };
    // A client that got no connection says nothing at all; that is asked again, of either run.
    let told = |command: fn(&Path) -> Command| {
        let mut attempts = (0..3).map(|_| outcome(&mut command(&server)));
        attempts.find(|(text, _)| !text.trim().is_empty()).unwrap_or_default()
    };
    let without = told(|path| plain(path));
    let with = told(|path| preloaded(path));
    assert!(without.0.contains("[pass]"), "memccapable checked nothing: {}", without.0);
    assert_eq!(without, with);
}

/* ---- interpreters and databases ---- */

/// Threads, queues, conditions, semaphores, time-outs and a pool: every wait of CPython ends in
/// pthread functions, and the interpreter's own lock is a mutex with a condition.
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

/// One database, four writers and four readers, each with its connection; then SQLite's own check.
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
            # A writer adds 20 rows at once, so no reader ever sees another number.
            for _, n in c.execute("select writer, count(*) from t group by writer"):
                if n % 20: errors.append(f"{n} rows")
    except Exception as e: errors.append(repr(e))
threads = [threading.Thread(target=write, args=(w,)) for w in range(4)]
threads += [threading.Thread(target=read) for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(errors, db.execute("select count(*), sum(n), sum(length(value)) from t").fetchall())
print(db.execute("pragma integrity_check").fetchall())
# One connection shared by all, in SQLite's serialized mode: its own mutexes are contended.
shared = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
sums = []
def ask():
    sums.append(sum(shared.execute("select sum(n) from t where writer = ?", (i % 4,)).fetchone()[0] for i in range(100)))
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
fn python_with_many_threads() {
    python(PYTHON, false);
}

#[test]
fn sqlite_with_many_threads() {
    python(SQLITE, true);
}

/// The shell of SQLite: one thread, but its library takes a lock in every call.
#[test]
fn sqlite_shell() {
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

/// Fills a database, reads it with many threads, and lets RocksDB verify its own checksums.
#[test]
fn rocksdb() {
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
        // Of the threads' counts, all alike, RocksDB prints one.
        let read = go("readrandom,readseq,verifychecksum", "--threads=4", false);
        let found: Vec<String> = read
            .lines()
            .filter_map(|line| line.split_once('(').map(|(_, rest)| rest.to_owned()))
            .filter(|rest| rest.contains(" found)"))
            .collect();
        // Writers, a group commit, flushes and compactions together; then the checksums again.
        let mixed = go("overwrite,compact,verifychecksum,readwhilewriting,verifychecksum", "--threads=4", false);
        let checked = mixed.lines().filter(|line| line.starts_with("verifychecksum")).count();
        (found, checked)
    };
    let without = outcome(&|| plain(&path));
    let with = outcome(&|| preloaded(&path));
    assert_eq!(without.0, [format!("{N} of {N} found)")], "every key is found");
    assert_eq!(without.1, 2, "both verifications ran");
    assert_eq!(without, with);
}
