//! Every sensor serves a program, and one that cannot be had costs one line.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::contend::{Contend, Saw, alone, wait_for_begin};
use support::{LIMIT, Running, library};

fn under(sensor: &str) -> Saw {
    let contend = Contend::new();
    contend.run(contend.command(&["8", "1"]).env("UNCONVOY_SENSOR", sensor), |_| {})
}

/// One line that has all the `words`, and the default sensor.
#[track_caller]
fn falls_back(saw: &Saw, words: &[&str]) {
    let line = &saw.finished.stderr;
    assert_eq!(line.lines().count(), 1, "{line}");
    assert!(words.iter().all(|word| line.contains(word)), "{line}");
    assert_eq!(saw.sensor, "schedstat");
    assert!(saw.ticks > 0);
}

#[test]
fn those_that_need_no_privilege() {
    for (choice, name) in
        [("schedstat", "schedstat"), ("loadavg", "loadavg"), ("psi", "psi"), ("fixed:3", "fixed:N"), ("", "schedstat")]
    {
        let saw = under(choice);
        if saw.sensor != name {
            falls_back(&saw, &[choice, "/proc/", "schedstat"]);
            println!("skipped: {}", saw.finished.stderr.trim());
            continue;
        }
        assert_eq!(saw.finished.stderr, "");
        assert!(saw.ticks > 0 && saw.capacity > 0.0, "{choice}: {} ticks, {} processors", saw.ticks, saw.capacity);
        if choice == "fixed:3" {
            assert_eq!(saw.capacity, 3.0);
        }
    }
}

#[test]
fn a_name_that_is_none() {
    for wrong in ["nosuch", "fixed:", "fixed:0", "fixed:many"] {
        falls_back(&under(wrong), &[wrong, "loadavg", "fixed:N", "using schedstat"]);
    }
}

#[test]
fn a_count_that_nobody_keeps() {
    falls_back(&under("bpf"), &["unconvoy run --sensor bpf"]);
}

#[test]
fn half_a_millisecond_is_an_interval() {
    let contend = Contend::new();
    let ticks = |ms: &str| contend.run(contend.command(&["4", "1"]).env("UNCONVOY_INTERVAL_MS", ms), |_| {}).ticks;
    let (short, long) = (ticks("0.5"), ticks("50.5"));
    assert!(long > 0 && short > 2 * long, "{short} against {long}");
    let saw = contend.run(contend.command(&["4", "1"]).env("UNCONVOY_INTERVAL_MS", "0.4"), |_| {});
    assert!(saw.finished.stderr.contains("UNCONVOY_INTERVAL_MS=0.4"), "{}", saw.finished.stderr);
}

/// The command beside the library.
fn unconvoy() -> PathBuf {
    let command = library().with_file_name("unconvoy");
    if !command.is_file() {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--release", "--package", "unconvoy-cli"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo runs");
        assert!(built.success() && command.is_file(), "{} is not there after cargo build", command.display());
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

/// Whether the kernel can be had to count here; prints why not.
fn can_count(contend: &Contend) -> bool {
    let finished = Running::start(&mut counted(contend, &["true"])).finish(LIMIT).success("true");
    if !finished.stderr.is_empty() {
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
        assert!(finished.stderr.contains("no bpf sensor, using schedstat: "), "{}", finished.stderr);
        println!("skipped: {}", finished.stderr.trim());
    }
    finished.stderr.is_empty()
}

/// Links between BPF programs and what they are attached to, on the whole machine.
fn links() -> usize {
    const LINK_GET_NEXT_ID: libc::c_int = 31;
    let mut attributes = [0u32; 4]; // where to begin, what is next, flags, none
    let mut next = |id: u32| {
        attributes = [id, 0, 0, 0];
        // SAFETY: the kernel reads and writes the attributes, of which it is told the size.
        let status = unsafe {
            libc::syscall(libc::SYS_bpf, LINK_GET_NEXT_ID, attributes.as_mut_ptr(), size_of_val(&attributes))
        };
        (status == 0).then_some(attributes[1])
    };
    std::iter::successors(next(0), |&id| next(id)).count()
}

#[test]
fn the_kernels_count() {
    let _alone = alone();
    let contend = Contend::new();
    if !can_count(&contend) {
        return;
    }
    let program = contend.program.to_str().expect("UTF-8");
    // Itself, as what a script becomes, and as a child, which is not counted and says nothing of it.
    for (words, sensor) in [
        (vec![program, "8", "1"], "bpf"),
        (vec!["sh", "-c", "exec \"$0\" 8 1", program], "bpf"),
        (vec!["sh", "-c", "UNCONVOY_STATS_OWNER= \"$0\" 8 1; :", program], "schedstat"),
    ] {
        let mut command = counted(&contend, &words);
        if sensor == "bpf" {
            let saw = contend.run(&mut command, |_| {});
            assert_eq!((saw.sensor.as_str(), saw.finished.stderr.as_str()), (sensor, ""), "{words:?}");
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
fn a_program_that_closes_the_counts_descriptors() {
    let _alone = alone();
    let contend = Contend::new();
    if can_count(&contend) {
        let program = contend.program.to_str().expect("UTF-8");
        let saw = contend.run(&mut counted(&contend, &[program, "8", "1", "close"]), |_| {});
        falls_back(&saw, &["descriptors", "using schedstat"]);
    }
}

#[test]
fn nothing_is_left_of_a_program_that_is_killed() {
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
    // The kernel takes a program down a grace period after its last descriptor.
    let deadline = Instant::now() + LIMIT;
    while links() > before && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(links(), before);
}
