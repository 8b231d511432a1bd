//! Database servers from Debian's packages under real clients. Each server runs once without and
//! once with the library; its clients never have the library. Both runs must end with the same
//! data.

#[path = "subjects/mariadb.rs"]
mod mariadb;
mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use mariadb::{MariaDb, reported};
use rustix::process::{Signal, geteuid};
use support::server::Service;
use support::{LIMIT, installed, library, plain, preloaded, run};

/* ---- MariaDB ---- */

/// Accounts that several clients transfer between, and counters behind each kind of the server's
/// locks: InnoDB's rows, whole tables of the engines without transactions, and named locks.
/// Transfers of different clients are independent, so the result does not depend on their order.
const BANK: &str = "
create table accounts (id int primary key, balance bigint not null) engine=innodb;
insert into accounts select seq, 1000 from seq_1_to_50;
create table history (client int, step int, amount int, primary key (client, step)) engine=innodb;
create table counter_innodb (n int) engine=innodb;
create table counter_aria (n int) engine=aria;
create table counter_myisam (n int) engine=myisam;
insert into counter_innodb values (0);
insert into counter_aria values (0);
insert into counter_myisam values (0);
delimiter //
create procedure work(client int, steps int)
begin
  declare step, sender, receiver, amount, seen int default 0;
  while step < steps do
    set step = step + 1;
    set sender = 1 + (client * 7919 + step * 104729) % 50;
    set receiver = 1 + (sender + client + step) % 50;
    set amount = (client + step) % 97;
    start transaction;
    -- In the order of their ids, to avoid deadlocks.
    update accounts set balance = balance - amount where id = least(sender, receiver);
    update accounts set balance = balance + amount where id = greatest(sender, receiver);
    insert into history values (client, step, amount);
    update counter_innodb set n = n + 1;
    commit;
    update counter_aria set n = n + 1;
    if step % 4 = 0 then
      if get_lock('turn', 60) then
        select n into seen from counter_myisam;
        update counter_myisam set n = seen + 1;
        do release_lock('turn');
      end if;
    end if;
    if step % 16 = 0 and (select sum(balance) from accounts) <> 50000 then
      signal sqlstate '45000' set message_text = 'money was made or lost';
    end if;
  end while;
end//
delimiter ;
";

/// The resulting data.
const AUDIT: &str = "
select 'sum', count(*), sum(balance) from accounts;
select * from accounts order by id;
select 'history', count(*), sum(amount), count(distinct client) from history;
select 'counters', i.n, a.n, m.n from counter_innodb i, counter_aria a, counter_myisam m;
select 'sysbench', (select count(*) from sbtest1), (select count(*) from sbtest2),
  (select count(*) from sbtest3);
check table accounts, history, counter_innodb, counter_aria, counter_myisam,
  sbtest1, sbtest2, sbtest3 extended;
";

const CLIENTS: usize = 8;
const STEPS: usize = 64;
const EVENTS: usize = 800;
const ROWS: usize = 500;

/// Creates a database, loads it with `sysbench` and the bank's clients, and returns its contents.
fn outcome(mariadb: &MariaDb, command: fn(&Path) -> Command, arguments: &[&str]) -> Vec<String> {
    let server = mariadb.start(command, arguments);
    let socket = &server.socket;
    run(mariadb.client(socket).args(["sbtest", "-e", &server.source(BANK)]))
        .success("create the bank");

    let sysbench = |step: &str| {
        let events = format!("--events={EVENTS}");
        let running = mariadb.sysbench(socket, ROWS, CLIENTS, &[&events, "--time=0", step]);
        running.finish(LIMIT).success("sysbench").text()
    };
    sysbench("prepare");
    let report = thread::scope(|scope| {
        let report = support::room::thread(scope, || sysbench("run"));
        let workers: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let mut client = mariadb.client(socket);
                support::room::thread(scope, move || {
                    let call = format!("call work({number}, {STEPS})");
                    run(client.args(["sbtest", "-e", &call])).success(&call);
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("a client of the bank");
        }
        report.join().expect("sysbench")
    });
    assert_eq!(reported(&report, "transactions:"), Some(EVENTS), "{report}");
    assert_eq!(reported(&report, "reconnects:"), Some(0), "{report}");

    let answers =
        run(mariadb.client(socket).args(["sbtest", "-e", AUDIT])).success("the audit").text();
    let log = server.service.stop(Signal::TERM).success("mariadbd").stderr;
    assert!(log.contains("mariadbd: Shutdown complete"), "{log}");
    assert!(!log.contains("[ERROR]"), "{log}");
    // The warnings, without time and thread.
    let warnings = log.lines().filter_map(|line| line.split_once("[Warning] "));
    answers
        .lines()
        .map(str::to_owned)
        .chain(warnings.map(|(_, warning)| warning.to_owned()))
        .collect()
}

fn same_data(mariadb: &MariaDb, arguments: &[&str]) {
    // MariaDB's CHECK TABLE sometimes misses records that its purge is removing, with libc as
    // well.
    let is_sound =
        |lines: &Vec<String>| !lines.iter().any(|line| line.contains("\tcheck\tWarning"));
    let sound = |command: fn(&Path) -> Command| {
        let mut outcomes = (0..3).map(|_| outcome(mariadb, command, arguments));
        outcomes.find(is_sound).expect("one of three runs has sound tables")
    };
    let without = sound(|path| plain(path));
    let with = sound(|path| preloaded(path));
    assert_eq!(without, with);
    let steps = CLIENTS * STEPS;
    for line in [
        "sum\t50\t50000".to_owned(),
        format!("counters\t{steps}\t{steps}\t{}", steps / 4),
        format!("sysbench\t{ROWS}\t{ROWS}\t{ROWS}"),
    ] {
        assert!(with.contains(&line), "{line} not in {with:#?}");
    }
    assert!(with.iter().any(|line| line.starts_with(&format!("history\t{steps}\t"))), "{with:#?}");
    let checked: Vec<&String> = with.iter().filter(|line| line.contains("\tcheck\t")).collect();
    assert!(
        checked.len() == 8 && checked.iter().all(|line| line.ends_with("\tstatus\tOK")),
        "{checked:#?}"
    );
}

/// The server runs a thread for each connection, and commits in groups because of a binary log.
#[test]
#[ignore = "make test-all: needs databases"]
fn mariadb_with_thread_per_connection_gives_same_data() {
    if let Some(mariadb) = MariaDb::installed() {
        same_data(&mariadb, &["--log-bin=binary", "--server-id=1", "--binlog-format=mixed"]);
    }
}

/// The server has more connections than threads, InnoDB's own asynchronous I/O, a query cache
/// shared by all statements, and instrumentation around every lock.
#[test]
#[ignore = "make test-all: needs databases"]
fn mariadb_with_thread_pool_gives_same_data() {
    if let Some(mariadb) = MariaDb::installed() {
        same_data(
            &mariadb,
            &[
                "--thread-handling=pool-of-threads",
                "--thread-pool-size=2",
                "--innodb-use-native-aio=0",
                "--query-cache-type=1",
                "--query-cache-size=1M",
                "--performance-schema=1",
                "--performance-schema-instrument=wait/synch/%=on",
            ],
        );
    }
}

/* ---- PostgreSQL ---- */

/// PostgreSQL's programs, and a directory owned by its user: PostgreSQL does not serve as root.
struct Postgres {
    bin: PathBuf,
    directory: tempfile::TempDir,
    /// The user and the group to run as.
    user: Option<(u32, u32)>,
}

impl Postgres {
    fn new(bin: &Path) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let user = geteuid().is_root().then(|| {
            let users = fs::read_to_string("/etc/passwd").expect("the system's users");
            let fields = users.lines().find_map(|line| line.strip_prefix("postgres:"));
            let numbers = fields.expect("Debian's package creates the user").split(':').skip(1);
            let numbers: Vec<u32> =
                numbers.take(2).map(|number| number.parse().expect("a number")).collect();
            (numbers[0], numbers[1])
        });
        if let Some((user, group)) = user {
            chown(directory.path(), Some(user), Some(group)).expect("root may chown");
        }
        Postgres { bin: bin.to_owned(), directory, user }
    }

    /// A copy of the library that PostgreSQL's user can read.
    fn library(&self) -> PathBuf {
        let copy = self.directory.path().join(library().file_name().expect("a file"));
        if !copy.exists() {
            fs::copy(library(), &copy).expect("a temporary file");
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("our own file");
        }
        copy
    }

    fn command(&self, program: &str, preload: bool) -> Command {
        let mut command = plain(self.bin.join(program));
        command
            .current_dir(self.directory.path())
            .env("LC_ALL", "C")
            .env("PGHOST", self.directory.path());
        command.env("PGUSER", "postgres").env("PGDATABASE", "postgres");
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        if preload {
            command.env("LD_PRELOAD", self.library());
        }
        command
    }

    /// The answers to SQL statements, one per line.
    fn ask(&self, questions: &str) -> String {
        let mut command = self.command("psql", false);
        run(command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", questions]))
            .success(questions)
            .text()
    }
}

/// The sums of all four tables, which the benchmark keeps equal, and all balances, which the seed
/// and the number of transactions per client determine.
const BALANCES: &str = "
select sum(abalance) from pgbench_accounts;
select sum(tbalance) from pgbench_tellers;
select sum(bbalance) from pgbench_branches;
select sum(delta) from pgbench_history;
select count(*) from pgbench_history;
select md5(string_agg(aid || ':' || abalance, ',' order by aid)) from pgbench_accounts;
";

/// One query, run by one process and by several, interpreted and compiled.
const PARALLEL: &str = "
select count(*), sum(abalance), sum(aid::bigint * aid), count(distinct abalance)
from pgbench_accounts a join pgbench_tellers t on a.aid % 10 + 1 = t.tid where a.aid % 3 <> 1
";

#[test]
#[ignore = "make test-all: needs databases"]
fn postgres_under_pgbench_gives_same_data() {
    let Some(server) = installed("postgres", "postgresql") else {
        return;
    };
    let bin = server.parent().expect("a file is in a directory");
    let outcome = |preload: bool| {
        let postgres = Postgres::new(bin);
        let data = postgres.directory.path().join("data");
        let mut initdb = postgres.command("initdb", preload);
        run(initdb.arg("-D").arg(&data).args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
        ]))
        .success("initdb");
        let mut command = postgres.command("postgres", preload);
        command.arg("-D").arg(&data).arg("-k").arg(postgres.directory.path());
        for setting in
            ["listen_addresses=", "fsync=off", "shared_buffers=32MB", "max_connections=20"]
        {
            command.args(["-c", setting]);
        }
        // Read the file that pg_ctl reads: a client that connects too early causes an error in the
        // log.
        let says_ready = || {
            let state = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
            state.lines().any(|line| line.trim() == "ready")
        };
        let service = Service::start(&mut command, says_ready);
        run(postgres.command("pgbench", false).args(["-i", "-q", "-s", "1"])).success("pgbench -i");
        let mut pgbench = postgres.command("pgbench", false);
        let report =
            run(pgbench.args(["-c", "4", "-j", "1", "-t", "100", "-n", "--random-seed=42"]))
                .success("pgbench")
                .text();
        assert!(report.contains("actually processed: 400/400"), "{report}");
        assert!(report.contains("failed transactions: 0 "), "{report}");
        let balances = postgres.ask(BALANCES);

        let forced = "set parallel_setup_cost = 0; set parallel_tuple_cost = 0; \
                      set min_parallel_table_scan_size = 0;";
        let ask = |workers: usize, compiled: bool, prefix: &str| {
            let settings = format!("{forced} set max_parallel_workers_per_gather = {workers};");
            let compiler =
                if compiled { "set jit = on; set jit_above_cost = 0;" } else { "set jit = off;" };
            postgres.ask(&format!("{settings} {compiler} {prefix} {PARALLEL}"))
        };
        let plan = ask(2, false, "explain (analyze, costs off, timing off, summary off)");
        assert!(plan.contains("Workers Launched: 2"), "{plan}");
        let alone = ask(0, false, "");
        assert_eq!(ask(2, false, ""), alone);
        assert_eq!(ask(0, true, ""), alone);
        assert_eq!(ask(2, true, ""), alone);
        let end = service.stop(Signal::INT).success("postgres");
        assert!(end.stderr.contains("database system is shut down"), "{}", end.stderr);
        for bad in ["WARNING:", "ERROR:", "PANIC:"] {
            assert!(!end.stderr.contains(bad), "{}", end.stderr);
        }
        (balances, alone)
    };
    let without = outcome(false);
    let with = outcome(true);
    assert_eq!(without, with);
    let lines: Vec<&str> = with.0.lines().collect();
    assert!(
        lines.len() == 6 && lines[..4].iter().all(|sum| *sum == lines[0] && *sum != "0"),
        "{lines:?}"
    );
    assert_eq!(lines[4], "400");
}
