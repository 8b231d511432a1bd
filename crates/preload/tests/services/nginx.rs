//! nginx with a pool of threads that reads files.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use rustix::process::Pid;

use super::support::members;
use super::*;

/// Neither random nor constant bytes.
fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// A configuration in which a pool of threads reads files, and writes the rest of a proxied
/// response for a slow client. Each generation of the configuration states its number in a header.
fn nginx_configuration(directory: &Path, generation: usize) -> PathBuf {
    let at = directory.display();
    let user = if when_root(&[""]).is_empty() { "" } else { "user root;" };
    let text = format!(
        "daemon off; {user} worker_processes 1; pid {at}/pid; error_log stderr warn;
         thread_pool files threads=8 max_queue=4096;
         events {{ worker_connections 256; }}
         http {{
             access_log off; sendfile off; aio threads=files; aio_write on; output_buffers 2 16k;
             client_body_timeout 300s;
             client_body_temp_path {at}/body; proxy_temp_path {at}/proxy;
             fastcgi_temp_path {at}/fastcgi; uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
             add_header Generation {generation};
             server {{
                 listen unix:{at}/socket;
                 location / {{ root {at}/files; }}
                 location /sent/ {{ alias {at}/files/; sendfile on; }}
                 location /proxied/ {{ proxy_pass http://unix:{at}/socket:/; proxy_buffers 4 8k; }}
             }}
         }}"
    );
    let path = directory.join("configuration");
    fs::write(&path, text).expect("a temporary file");
    path
}

/// Returns the generation of the worker that answered, and the body. The connection serves one
/// request, so that a worker that ends cannot close it between two requests.
fn fetch(socket: &Path, path: &str, slowly: bool) -> (usize, Vec<u8>) {
    let mut connection = Lines::connect(socket);
    connection.send(&format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"));
    if slowly {
        thread::sleep(std::time::Duration::from_millis(30));
    }
    assert_eq!(connection.line(), "HTTP/1.1 200 OK", "{path}");
    let mut generation = None;
    let mut length = None;
    loop {
        let line = connection.line();
        match line.split_once(": ") {
            Some(("Generation", number)) => generation = number.parse().ok(),
            Some(("Content-Length", number)) => length = number.parse().ok(),
            Some(_) => {}
            None => break,
        }
    }
    let body = connection.rest();
    assert_eq!(length, Some(body.len()), "{path}");
    (generation.expect("a generation"), body)
}

/// A request that keeps its worker alive until the connection is dropped. nginx 1.22 ends a
/// replaced worker as soon as no timer is pending, and a request that only waits for the pool has
/// no timer. Without a held request, such requests are sometimes cut off, with or without the
/// library ("open socket left in connection").
fn hold(socket: &Path) -> Lines {
    let mut connection = Lines::connect(socket);
    connection.send(
        "POST /proxied/1 HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\
         Expect: 100-continue\r\n\r\n",
    );
    assert_eq!(connection.line(), "HTTP/1.1 100 Continue");
    connection
}

/// Number of sleeps of all threads of `process` but the first.
fn sleeps_of_pool(process: i32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("the worker's threads");
    let others = threads.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    others
        .filter(|thread| *thread != process.to_string())
        .filter_map(|thread| {
            fs::read_to_string(format!("/proc/{process}/task/{thread}/status")).ok()
        })
        .filter_map(|status| {
            status.lines().find_map(|line| {
                line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok()
            })
        })
        .sum()
}

const RELOADS: usize = 3;

#[test]
#[ignore = "make test-all: needs servers"]
fn nginx_thread_pool_serves_files_across_reloads() {
    let Some(path) = installed("nginx", "nginx-core") else {
        return;
    };
    if !run(plain(&path).arg("-V")).both().contains("--with-threads") {
        println!("skipped: this nginx has no thread pools");
        return;
    }
    let outcome = |mut command: Command| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let socket = directory.path().join("socket");
        let files = directory.path().join("files");
        fs::create_dir(&files).expect("a temporary directory");
        let sizes = [0, 1, 4095, 70_000, 1_000_003];
        for size in sizes {
            fs::write(files.join(format!("{size}")), content(size)).expect("a temporary file");
        }
        let configuration = nginx_configuration(directory.path(), 0);
        command
            .arg("-p")
            .arg(directory.path())
            .arg("-c")
            .arg(&configuration)
            .args(["-e", "stderr"]);
        let mut service = Service::start(&mut command, || UnixStream::connect(&socket).is_ok());
        let requests = |client: usize, round: usize| {
            let size = sizes[(client + round) % sizes.len()];
            let place = ["", "sent/", "proxied/"][round % 3];
            let (generation, body) =
                fetch(&socket, &format!("/{place}{size}"), place == "proxied/");
            assert!(body == content(size), "/{place}{size} differs, in {} bytes", body.len());
            generation
        };

        // Before the worker is replaced: eight clients, and proof that the pool's threads served
        // them.
        let before: u64 = service
            .members()
            .iter()
            .map(|worker| sleeps_of_pool(worker.as_raw_nonzero().get()))
            .sum();
        thread::scope(|scope| {
            for client in 0..8 {
                support::room::thread(scope, move || {
                    for round in 0..30 {
                        assert_eq!(requests(client, round), 0);
                    }
                });
            }
        });
        let workers = service.members();
        let slept: u64 =
            workers.iter().map(|worker| sleeps_of_pool(worker.as_raw_nonzero().get())).sum();
        assert!(slept - before > 200, "the pool's threads woke {} times", slept - before);

        // Workers are replaced under load: no request fails, and replaced workers end.
        let done = AtomicBool::new(false);
        let served = [const { AtomicUsize::new(0) }; 4];
        thread::scope(|scope| {
            // The clients must end however this scope ends.
            struct Done<'a>(&'a AtomicBool);
            impl Drop for Done<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Relaxed);
                }
            }
            let _done = Done(&done);
            for (client, served) in served.iter().enumerate() {
                let done = &done;
                support::room::thread(scope, move || {
                    while !done.load(Relaxed) {
                        requests(client, served.fetch_add(1, Relaxed));
                    }
                });
            }
            for generation in 1..=RELOADS {
                let master = service.id();
                let old = service.members();
                let left = || {
                    members(master).into_iter().filter(|pid| old.contains(pid)).collect::<Vec<_>>()
                };
                let held = hold(&socket);
                nginx_configuration(directory.path(), generation);
                service.signal(Signal::HUP);
                service.wait_until("the new configuration is in use", || {
                    fetch(&socket, "/1", false).0 == generation
                });
                service.wait_until("the old worker has stopped listening", || {
                    let title = |pid: &Pid| {
                        fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_nonzero()))
                    };
                    left()
                        .iter()
                        .any(|pid| title(pid).is_ok_and(|title| title.contains("is shutting down")))
                });
                // A request under way is finished once its client has started two more.
                let so_far = served.each_ref().map(|served| served.load(Relaxed));
                service.wait_until("the old worker has no requests", || {
                    served
                        .iter()
                        .zip(so_far)
                        .all(|(served, so_far)| served.load(Relaxed) >= so_far + 2)
                });
                drop(held);
                // Only the master remains of the old processes.
                service.wait_until("the old worker ends", || left().len() == 1);
            }
        });
        service.stop(Signal::QUIT).success("nginx")
    };
    for end in [outcome(plain(&path)), outcome(preloaded(&path))] {
        // The use of temporary files is a warning, and the only expected line.
        let is_expected =
            |line: &str| line.contains(" an upstream response is buffered to a temporary file ");
        assert!(!end.stderr.is_empty() && end.stderr.lines().all(is_expected), "{}", end.stderr);
    }
}
