//! `unconvoy run --metrics` on a program whose locks are known, read by Prometheus's own tools.

#[path = "top/scene.rs"]
mod scene;
mod stage;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use scene::{Scene, wait_until};
use stage::{Running, Stage};

/// Runs the program with metrics until the file says that waits were counted.
fn with_metrics(scene: &Scene) -> (Running, PathBuf, String) {
    let directory = scene.stage.path("collected");
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join("server.prom");
    let mut command = scene.stage.process();
    command.env("UNCONVOY_LIBRARY", &scene.library).env("UNCONVOY_METRICS_MS", "100");
    command.args(["run", "--metrics"]).arg(&file).arg("--").arg(&scene.program).arg("2000");
    let (running, _) = scene.start(command.stdout(Stdio::piped()));
    let mut text = String::new();
    wait_until("metrics of both locks", || {
        text = std::fs::read_to_string(&file).unwrap_or_default();
        value(&text, "queue_lock").is_some() && value(&text, "ring_lock").is_some()
    });
    (running, directory, text)
}

/// The time waited for a class of locks.
fn value(text: &str, lock: &str) -> Option<f64> {
    figure(text, "unconvoy_lock_waited_seconds_total", lock)
}

fn figure(text: &str, name: &str, lock: &str) -> Option<f64> {
    let start = format!("{name}{{process=\"server\",class=\"{lock} in locks\"");
    let line = text.lines().find(|line| line.starts_with(&start))?;
    line.split_whitespace().last()?.parse().ok()
}

#[test]
fn metrics_grow_and_name_classes() {
    let Some(scene) = Scene::new() else { return };
    let (running, directory, text) = with_metrics(&scene);
    let first = value(&text, "queue_lock").expect("checked");
    let file = directory.join("server.prom");
    wait_until("a later file", || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        value(&text, "queue_lock").is_some_and(|later| later > first)
    });
    assert!(text.contains("class=\"other\",kind=\"any\"} 0"), "{text}");
    assert!(text.contains("unconvoy_processors{process=\"server\"}"), "{text}");
    drop(running);
    let left: Vec<_> = std::fs::read_dir(&directory).expect("a directory").collect();
    assert!(left.len() <= 2, "the file, and one unfinished at most: {left:?}");
}

#[test]
fn held_time_is_estimated_for_mutexes_only() {
    let Some(scene) = Scene::new() else { return };
    let (_running, directory, text) = with_metrics(&scene);
    let held = |text: &str, lock| figure(text, "unconvoy_mutex_held_seconds_total", lock);
    assert_eq!(held(&text, "ring_lock"), None, "a spin lock has no count of acquisitions");
    wait_until("an estimate", || {
        let text = std::fs::read_to_string(directory.join("server.prom")).unwrap_or_default();
        held(&text, "queue_lock").is_some_and(|held| held > 0.0)
    });
}

#[test]
fn process_with_metrics_is_watched() {
    let Some(scene) = Scene::new() else { return };
    let (running, ..) = with_metrics(&scene);
    let has_locks =
        |snapshot: &serde_json::Value| !snapshot["locks"].as_array().unwrap().is_empty();
    scene.snapshot(running.0.id(), has_locks);
}

#[test]
fn child_of_fork_writes_a_file_of_its_own() {
    let Some(scene) = Scene::new() else { return };
    let file = scene.stage.path("server.prom");
    let mut command = scene.program();
    command.args(["2000", "fork"]).env("UNCONVOY_METRICS", &file);
    let (_running, said) = scene.start(command.env("UNCONVOY_METRICS_MS", "100"));
    let child = said.lines().find_map(|line| line.strip_prefix("child ")).expect("a child");
    let _kill = scene::Orphan(child.parse().expect("a number"));
    let of_child = scene.stage.path(&format!("server.{child}.prom"));
    wait_until("both files", || {
        let text = std::fs::read_to_string(&of_child).unwrap_or_default();
        file.is_file() && text.contains(&format!("process=\"server.{child}\""))
    });
}

#[test]
fn link_is_followed() {
    let Some(scene) = Scene::new() else { return };
    let [file, link] = ["target.prom", "link.prom"].map(|name| scene.stage.path(name));
    std::fs::write(&file, "").expect("written");
    std::os::unix::fs::symlink(&file, &link).expect("linked");
    let mut command = scene.program();
    command.arg("2000").env("UNCONVOY_METRICS", &link).env("UNCONVOY_METRICS_MS", "100");
    let (_running, _) = scene.start(&mut command);
    wait_until("metrics in the link's target", || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.contains("unconvoy_lock_waits_total{process=\"target\"")
    });
    assert!(link.is_symlink());
}

#[test]
fn pipe_is_refused_and_kept() {
    let Some(scene) = Scene::new() else { return };
    let pipe = scene.stage.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
    let is_pipe = || {
        use std::os::unix::fs::FileTypeExt as _;
        pipe.metadata().expect("there").file_type().is_fifo()
    };
    let mut command = Command::new("true");
    command.env("LD_PRELOAD", &scene.library).env("UNCONVOY_METRICS", &pipe);
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("it is not a regular file; running without them") && is_pipe(), "{said}");
    let mut command = scene.stage.process();
    command.args(["run", "--metrics"]).arg(&pipe).args(["--", "echo", "hello"]);
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("name a regular file; continuing without metrics"), "{said}");
    assert!(output.stdout == b"hello\n" && is_pipe());
}

#[test]
#[ignore = "make test-all: needs Prometheus's tools"]
fn metrics_satisfy_prometheus_checks() {
    let Some(scene) = Scene::new() else { return };
    let (_running, _, text) = with_metrics(&scene);
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(child) = promtool.stderr(Stdio::piped()).spawn() else {
        println!("missing: promtool not installed (apt-get install prometheus)");
        return;
    };
    let mut child = child;
    std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), text.as_bytes())
        .expect("promtool reads");
    let output = child.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.is_empty(), "{said}\n{text}");
}

#[test]
#[ignore = "make test-all: needs Prometheus's tools"]
fn node_exporter_serves_metrics() {
    let Some(scene) = Scene::new() else { return };
    let (_running, directory, _) = with_metrics(&scene);
    let mut exporter = Command::new("prometheus-node-exporter");
    exporter.args(["--collector.disable-defaults", "--collector.textfile"]);
    exporter.arg(format!("--collector.textfile.directory={}", directory.display()));
    exporter.args(["--web.listen-address", "127.0.0.1:0"]).stderr(Stdio::piped());
    let Ok(child) = exporter.spawn() else {
        println!(
            "missing: prometheus-node-exporter not installed (apt-get install \
             prometheus-node-exporter)"
        );
        return;
    };
    let mut exporter = Running(child);
    let stderr = BufReader::new(exporter.0.stderr.take().expect("a pipe"));
    let (sender, receiver) = std::sync::mpsc::channel();
    // Reads on to the end: a closed pipe would kill the exporter.
    std::thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            let at = line.find("127.0.0.1:").unwrap_or(line.len());
            let address = line[at..].split(['"', ' ']).next().unwrap_or_default().to_string();
            if !address.is_empty() && !address.ends_with(":0") {
                let _ = sender.send(address);
            }
        }
    });
    let address = receiver.recv_timeout(stage::LIMIT).ok();
    let address = address.expect("the exporter says where it listens");
    wait_until("a scrape", || {
        use std::io::{Read, Write};
        let Ok(mut stream) = std::net::TcpStream::connect(&address) else { return false };
        let mut text = String::new();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("a socket");
        let request = b"GET /metrics HTTP/1.0\r\n\r\n";
        if stream.write_all(request).and_then(|()| stream.read_to_string(&mut text)).is_err() {
            return false; // the exporter has just started
        }
        assert!(text.contains("\nnode_textfile_scrape_error 0\n"), "{text}");
        text.contains("unconvoy_lock_waits_total{")
            && text.contains("class=\"queue_lock in locks\"")
    });
}

#[test]
fn metrics_without_a_directory_leave_the_program_alone() {
    let stage = Stage::new();
    let output = stage
        .unconvoy()
        .args(["run", "--metrics", "no/such/server.prom", "--", "echo", "hello"])
        .output()
        .expect("the command runs");
    assert_eq!(output.stdout, b"hello\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("continuing without metrics"), "{said}");
}
