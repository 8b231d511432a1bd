//! Every sensor serves a program; an unavailable sensor costs one line.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::contend::{Contend, Saw, alone, wait_for_begin};
use support::{LIMIT, Running, library};
use unconvoy_locks::catalogue::SENSOR;

fn under(sensor: &str) -> Saw {
    let contend = Contend::new();
    contend.run(contend.command(&["8", "1"]).env("UNCONVOY_SENSOR", sensor), |_| {})
}

/// Checks for one warning line that has all the `words`, and for the default sensor.
#[track_caller]
fn falls_back(saw: &Saw, words: &[&str]) {
    let line = &saw.finished.stderr;
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(words.iter().all(|word| line.contains(word)), "{line}");
    assert_eq!(saw.sensor, "schedstat");
    assert!(saw.ticks > 0);
}

#[test]
fn unprivileged_sensors_serve_or_fall_back() {
    let unprivileged = SENSOR.iter().map(|entry| entry.name).filter(|name| *name != "bpf");
    for name in unprivileged.chain([""]) {
        let choice = name.replace('N', "3");
        let name = if name.is_empty() { SENSOR[0].name } else { name };
        let saw = under(&choice);
        if saw.sensor != name {
            falls_back(&saw, &[&choice, "/proc/", "schedstat"]);
            println!("skipped: {}", saw.finished.stderr.trim());
            continue;
        }
        assert_eq!(saw.finished.stderr, "");
        assert!(
            saw.ticks > 0 && saw.capacity > 0.0,
            "{choice}: {} ticks, {} processors",
            saw.ticks,
            saw.capacity
        );
        if choice == "fixed:3" {
            assert_eq!(saw.capacity, 3.0);
        }
    }
}

#[test]
fn unknown_sensor_warns_and_falls_back() {
    for wrong in ["nosuch", "fixed:", "fixed:0", "fixed:many"] {
        falls_back(&under(wrong), &[wrong, "loadavg", "fixed:N", "using schedstat"]);
    }
}

#[test]
fn bpf_sensor_without_count_warns_and_falls_back() {
    falls_back(&under("bpf"), &["unconvoy run --sensor bpf"]);
}

#[test]
fn interval_of_half_a_millisecond_is_accepted() {
    let contend = Contend::new();
    let ticks = |ms: &str| {
        contend.run(contend.command(&["4", "1"]).env("UNCONVOY_INTERVAL_MS", ms), |_| {}).ticks
    };
    let (short, long) = (ticks("0.5"), ticks("50.5"));
    assert!(long > 0 && short > 2 * long, "{short} against {long}");
    let saw = contend.run(contend.command(&["4", "1"]).env("UNCONVOY_INTERVAL_MS", "0.4"), |_| {});
    assert!(saw.finished.stderr.contains("UNCONVOY_INTERVAL_MS=0.4"), "{}", saw.finished.stderr);
}

/// The `unconvoy` command in the library's directory.
fn unconvoy() -> PathBuf {
    let command = library().with_file_name("unconvoy");
    if !command.is_file() {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--release", "--package", "unconvoy-cli"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(
            built.success() && command.is_file(),
            "{} is not there after cargo build",
            command.display()
        );
    }
    command
}

/// `words` under `unconvoy run --sensor bpf`.
fn counted(contend: &Contend, words: &[&str]) -> Command {
    let mut command = support::plain(unconvoy());
    command.env("UNCONVOY_LIBRARY", library()).env("UNCONVOY_STATS", contend.statistics());
    command.args(["run", "--sensor", "bpf", "--"]).args(words);
    command
}

/// Whether the kernel can count here; prints the reason if not.
fn can_count(contend: &Contend) -> bool {
    let finished = Running::start(&mut counted(contend, &["true"])).finish(LIMIT).success("true");
    if !finished.stderr.is_empty() {
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
        assert!(
            finished.stderr.contains("no bpf sensor, using schedstat: "),
            "{}",
            finished.stderr
        );
        println!("skipped: {}", finished.stderr.trim());
    }
    finished.stderr.is_empty()
}

/// Number of links between BPF programs and their attachment points, on the whole machine.
fn links() -> usize {
    const LINK_GET_NEXT_ID: libc::c_int = 31;
    let mut attributes = [0u32; 4]; // start id, next id, flags, unused
    let mut next = |id: u32| {
        attributes = [id, 0, 0, 0];
        // SAFETY: the kernel reads and writes the attributes, within the size passed to it.
        let status = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                LINK_GET_NEXT_ID,
                attributes.as_mut_ptr(),
                size_of_val(&attributes),
            )
        };
        (status == 0).then_some(attributes[1])
    };
    std::iter::successors(next(0), |&id| next(id)).count()
}

#[test]
fn bpf_sensor_counts_program_but_not_its_children() {
    let _alone = alone();
    let contend = Contend::new();
    if !can_count(&contend) {
        return;
    }
    let program = contend.program.to_str().expect("UTF-8");
    // The program itself, the program that a script becomes, and a child, which is not counted and
    // prints no warning.
    for (words, sensor) in [
        (vec![program, "8", "1"], "bpf"),
        (vec!["sh", "-c", "exec \"$0\" 8 1", program], "bpf"),
        (vec!["sh", "-c", "UNCONVOY_STATS_OWNER= \"$0\" 8 1; :", program], "schedstat"),
    ] {
        let mut command = counted(&contend, &words);
        if sensor == "bpf" {
            let saw = contend.run(&mut command, |_| {});
            assert_eq!(
                (saw.sensor.as_str(), saw.finished.stderr.as_str()),
                (sensor, ""),
                "{words:?}"
            );
            assert!(
                saw.ticks > 0 && saw.runnable <= 9.0,
                "{words:?}: {} runnable in {} ticks",
                saw.runnable,
                saw.ticks
            );
        } else {
            let finished = Running::start(&mut command).finish(LIMIT).success("a child");
            assert_eq!((finished.text().trim(), finished.stderr.as_str()), ("begun\ndone", ""));
        }
    }
}

#[test]
fn program_that_closes_bpf_descriptors_falls_back() {
    let _alone = alone();
    let contend = Contend::new();
    if can_count(&contend) {
        let program = contend.program.to_str().expect("UTF-8");
        let saw = contend.run(&mut counted(&contend, &[program, "8", "1", "close"]), |_| {});
        falls_back(&saw, &["descriptors", "using schedstat"]);
    }
}

#[test]
#[ignore = "make test-all: counts the links of the whole machine"]
fn killed_program_leaves_no_bpf_links() {
    let _alone = alone();
    let contend = Contend::new();
    if !can_count(&contend) {
        return;
    }
    let before = links();
    let program = contend.program.to_str().expect("UTF-8");
    let mut running = Running::start(&mut counted(&contend, &[program, "8", "60"]));
    wait_for_begin(&mut running);
    let during = links();
    running.signal(Signal::KILL);
    assert_eq!(running.finish(LIMIT).status.signal(), Some(9));
    assert_eq!(during, before + 3);
    // The kernel removes a BPF program a grace period after its last descriptor is closed.
    let deadline = Instant::now() + LIMIT;
    while links() > before && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(links(), before);
}
