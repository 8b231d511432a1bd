//! memcached, and clients that check its answers.

use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;

use crate::support::room;
use crate::support::server::{Lines, Service, when_root};

pub struct Memcached {
    pub service: Service,
    directory: tempfile::TempDir,
}

impl Memcached {
    pub fn start(command: &mut Command) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("socket");
        command
            .arg("-s")
            .arg(&socket)
            .args(["-t", "4", "-m", "64"])
            .args(when_root(&["-u", "root"]));
        let service = Service::start(command, || UnixStream::connect(&socket).is_ok());
        Memcached { service, directory }
    }

    fn connect(&self) -> Lines {
        Lines::connect(&self.directory.path().join("socket"))
    }
}

/// memcached's value for `key`.
fn get(client: &mut Lines, key: &str) -> Option<String> {
    client.send(&format!("get {key}\r\n"));
    let first = client.line();
    if first == "END" {
        return None;
    }
    assert!(first.starts_with(&format!("VALUE {key} ")), "get {key}: {first}");
    let value = client.line();
    assert_eq!(client.line(), "END");
    Some(value)
}

pub const CONNECTIONS: usize = 8;
pub const KEYS: usize = 1000;

/// Eight connections set and get their own keys and increment a shared counter. Returns the
/// server's counters.
pub fn drive(server: &Memcached) -> Vec<String> {
    let mut first = server.connect();
    first.send("set counter 0 0 1\r\n0\r\n");
    assert_eq!(first.line(), "STORED", "the counter is set before the clients start");
    thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            let mut client = server.connect();
            room::thread(scope, move || {
                for key in 0..KEYS {
                    let value = format!("value-{connection}-{}", key * 7919);
                    client.send(&format!(
                        "set k{connection}-{key} 0 0 {}\r\n{value}\r\n",
                        value.len()
                    ));
                    assert_eq!(client.line(), "STORED");
                    client.send("incr counter 1\r\n");
                    assert!(client.line().parse::<usize>().is_ok());
                    // An earlier key, and a key that was never set.
                    let back = key / 2;
                    let expected = format!("value-{connection}-{}", back * 7919);
                    assert_eq!(get(&mut client, &format!("k{connection}-{back}")), Some(expected));
                    assert_eq!(get(&mut client, "never"), None);
                }
            });
        }
    });
    let mut client = server.connect();
    let mut answers = vec![format!("counter {:?}", get(&mut client, "counter"))];
    client.send("stats\r\n");
    loop {
        let line = client.line();
        if line == "END" {
            return answers;
        }
        let counted = [
            "cmd_set",
            "get_hits",
            "get_misses",
            "curr_items",
            "total_items",
            "evictions",
            "threads",
        ];
        if counted.iter().any(|name| line.starts_with(&format!("STAT {name} "))) {
            answers.push(line);
        }
    }
}
