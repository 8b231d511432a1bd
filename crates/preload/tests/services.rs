//! Servers from Debian's packages under real clients. Each server runs once without and once with
//! the library; its clients never have the library. Both runs must give the same answers.
//! `packages.txt` lists the packages. A missing program is skipped with a message.

#[path = "subjects/memcached.rs"]
mod memcached;
#[path = "services/nginx.rs"]
mod nginx;
mod support;

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::thread;

use memcached::{CONNECTIONS, KEYS, Memcached, drive};
use rustix::process::Signal;
use support::server::{Lines, Service, when_root};
use support::{installed, plain, preloaded, run};

/* ---- memcached ---- */

#[test]
#[ignore = "make test-all: needs servers"]
fn memcached_under_eight_clients_gives_same_answers() {
    let Some(path) = installed("memcached", "memcached") else {
        return;
    };
    let outcome = |command: &mut Command| {
        let server = Memcached::start(command);
        let answers = drive(&server);
        (answers, server.service.stop(Signal::TERM))
    };
    let (without, plain_end) = outcome(&mut plain(&path));
    let (with, end) = outcome(&mut preloaded(&path));
    assert_eq!(without, with);
    assert_eq!(with[0], format!("counter Some(\"{}\")", CONNECTIONS * KEYS));
    assert_eq!(end.status, plain_end.status, "{}", end.both());
    assert_eq!(end.stderr, plain_end.stderr);
}

/// libmemcached's conformance client.
#[test]
#[ignore = "make test-all: needs servers"]
fn memcached_under_memccapable_gives_same_answers() {
    let Some(server) = installed("memcached", "memcached") else {
        return;
    };
    let Some(client) = installed("memccapable", "libmemcached-tools") else {
        return;
    };
    let outcome = |command: &mut Command| {
        // memccapable speaks TCP only. Another process could take the free port in between.
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .expect("a free port")
            .port()
            .to_string();
        command
            .args(["-l", "127.0.0.1", "-p", &port, "-U", "0", "-t", "4"])
            .args(when_root(&["-u", "root"]));
        let service =
            Service::start(command, || TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
        let finished = run(plain(&client).args(["-h", "127.0.0.1", "-p", &port, "-a"]));
        service.stop(Signal::TERM);
        (finished.text(), finished.status)
    };
    // A client without a connection prints nothing; such a run is repeated, with or without the
    // library.
    let answers = |command: fn(&Path) -> Command| {
        let mut attempts = (0..3).map(|_| outcome(&mut command(&server)));
        attempts.find(|(text, _)| !text.trim().is_empty()).unwrap_or_default()
    };
    let without = answers(|path| plain(path));
    let with = answers(|path| preloaded(path));
    assert!(without.0.contains("[pass]"), "memccapable checked nothing: {}", without.0);
    assert_eq!(without, with);
}

/* ---- Redis ---- */

/// A server with its data in `directory`, and with threads for reading, writing and freeing.
fn redis(mut command: Command, directory: &Path, arguments: &[&str]) -> (Service, Lines) {
    let socket = directory.join("socket");
    command.args(["--port", "0", "--save", "", "--enable-debug-command", "local"]);
    command.args(["--io-threads", "4", "--io-threads-do-reads", "yes"]);
    command.arg("--unixsocket").arg(&socket).arg("--dir").arg(directory).args(arguments);
    // The server listens before it has loaded its data, and answers meanwhile that it is loading.
    let service = Service::start(&mut command, || {
        UnixStream::connect(&socket).is_ok() && ask(&mut Lines::connect(&socket), "PING") == "+PONG"
    });
    let client = Lines::connect(&socket);
    (service, client)
}

/// Sends a command that has a single answer, and returns it.
fn ask(client: &mut Lines, command: &str) -> String {
    client.send(&format!("{command}\r\n"));
    let line = client.line();
    match line.strip_prefix('$').map(|length| length.parse::<usize>()) {
        Some(Ok(length)) => {
            let text = client.bytes(length + 2);
            String::from_utf8_lossy(&text[..length]).into_owned()
        }
        _ => line,
    }
}

/// One number of `INFO`.
fn info(client: &mut Lines, field: &str) -> u64 {
    let all = ask(client, "INFO everything");
    let found = all.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    found.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {field} in {all}"))
}

const WRITERS: usize = 4;
const ROUNDS: usize = 250;

/// Several clients write data that does not depend on their order; each checks its answers.
fn write_together(socket: &Path) {
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            support::room::thread(scope, move || {
                let mut client = Lines::connect(socket);
                for round in 0..ROUNDS {
                    // Six commands in one write, answered in order.
                    client.send(&format!(
                        "SET key:{writer}:{round} value{}\r\nINCR total\r\n\
                         HSET hash:{writer} f{round} {round}\r\n\
                         RPUSH list:{writer} {round}\r\nSADD set {}\r\nGET key:{writer}:{}\r\n",
                        round * 7919,
                        writer * ROUNDS + round,
                        round / 2
                    ));
                    assert_eq!(client.line(), "+OK");
                    assert!(client.line().starts_with(':'));
                    assert_eq!(client.line(), ":1");
                    assert_eq!(client.line(), format!(":{}", round + 1));
                    assert_eq!(client.line(), ":1");
                    let value = format!("value{}", round / 2 * 7919);
                    assert_eq!(
                        (client.line(), client.line()),
                        (format!("${}", value.len()), value)
                    );
                }
            });
        }
    });
}

/// Waits until a forked child has saved the data, and checks that it succeeded.
#[track_caller]
fn saved(service: &mut Service, client: &mut Lines, progress: &str, status: &str) {
    service.wait_until(progress, || info(client, progress) == 0);
    let all = ask(client, "INFO persistence");
    assert!(all.contains(&format!("{status}:ok")), "{all}");
}

#[test]
#[ignore = "make test-all: needs servers"]
fn redis_with_io_threads_gives_same_answers() {
    let Some(server) = installed("redis-server", "redis-server") else {
        return;
    };
    let Some(benchmark) = installed("redis-benchmark", "redis-tools") else {
        return;
    };
    // Redis's threads poll for each other, so even few requests take long on few processors.
    const REQUESTS: usize = 1000;
    let outcome = |command: &dyn Fn() -> Command| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("socket");
        let (mut service, mut client) = redis(command(), directory.path(), &[]);
        let bench = |database: &str, tests: &str| {
            let mut command = plain(&benchmark);
            command.arg("-s").arg(&socket).args([
                "-n",
                &REQUESTS.to_string(),
                "-c",
                "40",
                "--threads",
                "2",
            ]);
            run(command.args(["--dbnum", database, "-t", tests, "-q"])).success("redis-benchmark")
        };
        let mut answers = Vec::new();

        // The benchmark in database 1, with a fork halfway and another client in database 0.
        thread::scope(|scope| {
            let load = support::room::thread(scope, || bench("1", "set,incr,lpush,sadd"));
            write_together(&socket);
            assert_eq!(ask(&mut client, "BGSAVE"), "+Background saving started");
            load.join().expect("the benchmark");
        });
        saved(&mut service, &mut client, "rdb_bgsave_in_progress", "rdb_last_bgsave_status");
        for question in [
            "SELECT 1",
            "GET counter:__rand_int__",
            "LLEN mylist",
            "SCARD myset",
            "DBSIZE",
            "SELECT 0",
        ] {
            answers.push(format!("{question}: {}", ask(&mut client, question)));
        }
        for question in
            ["DBSIZE", "GET total", "SCARD set", "HLEN hash:1", "LLEN list:2", "GET key:3:77"]
        {
            answers.push(format!("{question}: {}", ask(&mut client, question)));
        }
        // The I/O threads were used.
        assert!(info(&mut client, "io_threaded_reads_processed") > 100);
        assert!(info(&mut client, "io_threaded_writes_processed") > 100);

        // A separate thread frees large objects.
        let freed = info(&mut client, "lazyfreed_objects");
        assert_eq!(ask(&mut client, "UNLINK hash:0 list:0 hash:3"), ":3");
        ask(&mut client, "SELECT 1");
        assert_eq!(ask(&mut client, "FLUSHDB ASYNC"), "+OK");
        ask(&mut client, "SELECT 0");
        service.wait_until("lazyfree", || info(&mut client, "lazyfree_pending_objects") == 0);
        answers.push(format!("freed: {}", info(&mut client, "lazyfreed_objects") - freed));

        // A snapshot, and a new server that loads it.
        assert_eq!(ask(&mut client, "BGSAVE"), "+Background saving started");
        saved(&mut service, &mut client, "rdb_bgsave_in_progress", "rdb_last_bgsave_status");
        answers.push(format!("digest: {}", ask(&mut client, "DEBUG DIGEST")));
        let first = service.stop(Signal::TERM);
        let (mut service, mut client) = redis(command(), directory.path(), &[]);
        answers.push(format!("digest: {}", ask(&mut client, "DEBUG DIGEST")));

        // A log that is rewritten while it grows, and a new server that replays it.
        assert_eq!(ask(&mut client, "CONFIG SET appendonly yes"), "+OK");
        saved(&mut service, &mut client, "aof_rewrite_in_progress", "aof_last_bgrewrite_status");
        ask(&mut client, "FLUSHALL ASYNC");
        thread::scope(|scope| {
            let load = support::room::thread(scope, || bench("1", "set,incr"));
            let started = ask(&mut client, "BGREWRITEAOF");
            assert_eq!(started, "+Background append only file rewriting started");
            write_together(&socket);
            load.join().expect("the benchmark");
        });
        saved(&mut service, &mut client, "aof_rewrite_in_progress", "aof_last_bgrewrite_status");
        ask(&mut client, "SELECT 1");
        answers.push(format!("counter: {}", ask(&mut client, "GET counter:__rand_int__")));
        answers.push(format!("digest: {}", ask(&mut client, "DEBUG DIGEST")));
        let second = service.stop(Signal::TERM);
        let (service, mut client) = redis(command(), directory.path(), &["--appendonly", "yes"]);
        answers.push(format!("digest: {}", ask(&mut client, "DEBUG DIGEST")));
        let third = service.stop(Signal::TERM);
        for end in [first, second, third] {
            let end = end.success("redis-server");
            assert!(end.text().contains("ready to exit, bye bye"), "{}", end.both());
        }
        answers
    };
    let without = outcome(&|| plain(&server));
    let with = outcome(&|| preloaded(&server));
    assert_eq!(without, with);
    let digests: Vec<&String> = with.iter().filter(|line| line.starts_with("digest: +")).collect();
    assert_eq!(digests.len(), 4);
    assert!(
        digests[0] == digests[1] && digests[2] == digests[3] && digests[0] != digests[2],
        "{with:?}"
    );
    let sum = WRITERS * ROUNDS;
    for line in [
        format!("GET counter:__rand_int__: {REQUESTS}"),
        format!("LLEN mylist: :{REQUESTS}"),
        format!("DBSIZE: :{}", sum + 2 * WRITERS + 2),
        format!("GET total: {sum}"),
        format!("SCARD set: :{sum}"),
        format!("counter: {REQUESTS}"),
    ] {
        assert!(with.contains(&line), "{line} not in {with:?}");
    }
}
