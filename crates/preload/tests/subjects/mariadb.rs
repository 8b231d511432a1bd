//! MariaDB, and sysbench as its client.

// Each test binary that compiles this module uses only a part of it.
#![allow(dead_code)]

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::server::{Service, when_root};
use crate::support::{Running, installed, plain, run};

/// The programs, from packages of one version.
pub struct MariaDb {
    server: PathBuf,
    install: PathBuf,
    client: PathBuf,
    sysbench: PathBuf,
}

/// A server, its socket, and a directory for its data.
pub struct Server {
    pub service: Service,
    pub socket: PathBuf,
    directory: tempfile::TempDir,
}

impl Server {
    /// Writes statements to a file in the server's directory, and returns the command for it.
    pub fn source(&self, statements: &str) -> String {
        let file = self.directory.path().join("statements.sql");
        fs::write(&file, statements).expect("a temporary file");
        format!("source {}", file.display())
    }
}

impl MariaDb {
    pub fn installed() -> Option<Self> {
        Some(MariaDb {
            server: installed("mariadbd", "mariadb-server")?,
            install: installed("mariadb-install-db", "mariadb-server")?,
            client: installed("mariadb", "mariadb-client")?,
            sysbench: installed("sysbench", "sysbench")?,
        })
    }

    /// Starts a server on new data, in which `sbtest` is an empty database.
    pub fn start(&self, command: fn(&Path) -> Command, arguments: &[&str]) -> Server {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("socket");
        let data = directory.path().join("data");
        let shared = |command: &mut Command| {
            command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
            // A starting server removes all temporary tables in its directory, even those of other
            // servers.
            command.arg(format!("--tmpdir={}", directory.path().display()));
            command.args(when_root(&["--user=root"])).args(["--innodb-log-file-size=16M"]);
        };
        let mut install = command(&self.install);
        shared(&mut install);
        run(install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]))
            .success("mariadb-install-db");

        let mut server = command(&self.server);
        shared(&mut server);
        server.arg(format!("--socket={}", socket.display()));
        server.arg(format!("--pid-file={}", directory.path().join("pid").display()));
        server.args([
            "--skip-networking",
            "--innodb-buffer-pool-size=32M",
            "--innodb-flush-log-at-trx-commit=0",
        ]);
        let service =
            Service::start(server.args(arguments), || UnixStream::connect(&socket).is_ok());
        run(self.client(&socket).args(["-e", "create database sbtest"])).success("create database");
        Server { service, socket, directory }
    }

    pub fn client(&self, socket: &Path) -> Command {
        let mut command = plain(&self.client);
        command.arg("--no-defaults").arg("-S").arg(socket).args(["-uroot", "-BN"]);
        command
    }

    /// Starts sysbench on three tables of `rows` with `clients` connections. sysbench retries after
    /// deadlocks only; any other error gives a non-zero status.
    pub fn sysbench(
        &self,
        socket: &Path,
        rows: usize,
        clients: usize,
        arguments: &[&str],
    ) -> Running {
        let mut command = plain(&self.sysbench);
        command.args(["oltp_read_write", "--db-driver=mysql", "--mysql-user=root", "--tables=3"]);
        command.arg(format!("--mysql-socket={}", socket.display()));
        command.args([format!("--table-size={rows}"), format!("--threads={clients}")]);
        Running::start(command.args(arguments))
    }
}

/// The number that follows `name` in sysbench's report.
pub fn reported(report: &str, name: &str) -> Option<usize> {
    let line = report.lines().find_map(|line| line.trim().strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
}
