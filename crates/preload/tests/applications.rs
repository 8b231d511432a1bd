//! Large programs from Debian's packages, with their own locks, allocators, thread pools and
//! sandboxes: each runs without and with the library, and the results are compared. `packages.txt`
//! lists the packages. A missing program is skipped with a message.

#[path = "subjects/browser.rs"]
mod browser;
#[path = "subjects/java.rs"]
mod java;
mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use browser::{Browser, drawn};
use java::{Java, LINES};
use support::{installed, plain, preloaded, run};

/* ---- Chromium ---- */

#[track_caller]
fn same_page(browser: &Browser) {
    let library = browser.library();
    let Some(without) = browser.render("without", None, |_| ()) else {
        println!("skipped: chromium finds no usable sandbox here");
        return;
    };
    let with = browser
        .render("with", Some(&library), |_| ())
        .expect("the run without the library had a sandbox");
    assert!(without.document.contains(&drawn()), "{}", without.document);
    assert_eq!(without.document, with.document);
    assert!(without.screenshot.starts_with(b"\x89PNG") && without.screenshot.len() > 1000);
    assert!(without.screenshot == with.screenshot, "the page looks different");
}

#[test]
#[ignore = "make test-all: needs browsers, a JVM and others"]
fn chromium_renders_same_page() {
    if let Some(browser) = Browser::find(false) {
        same_page(&browser);
    }
}

/// Runs the browser as users do: with renderers in their own namespaces, without files, and under a
/// seccomp filter that kills a process for any system call off its list.
#[test]
#[ignore = "make test-all: needs browsers, a JVM and others"]
fn sandboxed_chromium_renders_same_page() {
    if let Some(browser) = Browser::find(true) {
        same_page(&browser);
    }
}

/* ---- video ---- */

const WIDTH: usize = 640;
const HEIGHT: usize = 360;
const FRAMES: usize = 60;

/// A clip with motion, texture and noise, as YUV4MPEG2 with 4:2:0 subsampling.
fn clip() -> Vec<u8> {
    let mut clip = format!("YUV4MPEG2 W{WIDTH} H{HEIGHT} F25:1 Ip A1:1 C420jpeg\n").into_bytes();
    let mut noise = 1_u32;
    for frame in 0..FRAMES {
        clip.extend_from_slice(b"FRAME\n");
        for (width, height) in [(WIDTH, HEIGHT), (WIDTH / 2, HEIGHT / 2), (WIDTH / 2, HEIGHT / 2)] {
            for y in 0..height {
                for x in 0..width {
                    noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let moved = (x + 3 * frame) ^ (y + frame);
                    clip.push((moved as u8 / 2).wrapping_add((noise >> 30) as u8));
                }
            }
        }
    }
    clip
}

/// The encoder's frame threads wait for each other's rows, and its pool waits for work. With a
/// fixed number of frame threads, the stream is almost always identical. On a busy machine x265 3.5
/// sometimes differs even without the library, so the test tries three times.
#[test]
#[ignore = "make test-all: needs browsers, a JVM and others"]
fn x265_encodes_same_bytes() {
    let Some(path) = installed("x265", "x265") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let input = directory.path().join("clip.y4m");
    fs::write(&input, clip()).expect("a temporary file");
    let encode = |mut command: Command, name: &str| {
        let output = directory.path().join(name);
        command
            .args([
                "--preset",
                "superfast",
                "--frame-threads",
                "3",
                "--pools",
                "4",
                "--wpp",
                "--lookahead-slices",
                "2",
            ])
            .args(["--no-progress", "--no-info", "--input"])
            .arg(&input)
            .arg("--output")
            .arg(&output);
        let finished = run(&mut command).success("x265");
        assert!(
            finished.stderr.contains("frame threads / pool features       : 3 / wpp"),
            "{}",
            finished.stderr
        );
        fs::read(output).expect("x265 writes its output")
    };
    let without = encode(plain(&path), "without.hevc");
    assert!(without.len() > 10_000, "{} bytes", without.len());
    let same = (0..3).any(|_| encode(preloaded(&path), "with.hevc") == without);
    assert!(same, "x265 encodes to different bytes");
}

/// Filters in slices, an encoder and a decoder with their own threads; prints each frame's
/// checksum.
#[test]
#[ignore = "make test-all: needs browsers, a JVM and others"]
fn ffmpeg_encodes_and_decodes_same_frames() {
    let Some(path) = installed("ffmpeg", "ffmpeg") else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let outcome = |command: &dyn Fn() -> Command, name: &str| {
        let clip = directory.path().join(name);
        let encoded = run(command()
            .args(["-v", "error", "-filter_threads", "4", "-f", "lavfi", "-i"])
            .arg("testsrc2=size=640x360:rate=25")
            .args(["-frames:v", "60", "-vf", "unsharp,hue=h=30,hflip", "-pix_fmt", "yuv420p"])
            .args([
                "-c:v",
                "mpeg4",
                "-threads",
                "4",
                "-slices",
                "4",
                "-flags",
                "+bitexact",
                "-fflags",
                "+bitexact",
            ])
            .arg(&clip))
        .success("ffmpeg encodes");
        let decoded = run(command()
            .args(["-v", "error", "-threads", "4", "-i"])
            .arg(&clip)
            .args(["-f", "framemd5", "-fflags", "+bitexact", "-"]))
        .success("ffmpeg decodes");
        let bytes = fs::read(clip).expect("ffmpeg writes its output");
        (bytes, decoded.text(), encoded.stderr, decoded.stderr)
    };
    let without = outcome(&|| plain(&path), "without.avi");
    let with = outcome(&|| preloaded(&path), "with.avi");
    let frames = without.1.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(frames, FRAMES, "{}", without.1);
    assert!(without == with, "without: {without:?}\nwith: {with:?}");
}

/* ---- Java ---- */

/// The virtual machine's monitors, parkers, safepoints and collectors.
#[test]
#[ignore = "make test-all: needs browsers, a JVM and others"]
fn java_gives_same_output_under_each_collector() {
    let Some(java) = Java::compiled() else { return };
    for collector in ["-XX:+UseG1GC", "-XX:+UseParallelGC"] {
        let outcome = |mut command: Command| {
            command.args([collector, "-XX:ParallelGCThreads=4"]);
            run(java.contention(&mut command)).success(collector)
        };
        let without = outcome(plain(&java.path));
        let with = outcome(preloaded(&java.path));
        assert_eq!(without.text().lines().count(), LINES, "{}", without.both());
        assert_eq!(without.text(), with.text(), "{collector}");
        assert_eq!(without.stderr, with.stderr, "{collector}");
    }
}

/* ---- LevelDB ---- */

#[test]
#[ignore = "make test-all: needs browsers, a JVM and others"]
fn leveldb_reads_back_all_keys() {
    let Some(compiler) = installed("g++", "g++") else {
        return;
    };
    if !Path::new("/usr/include/leveldb/db.h").is_file() {
        println!("missing: LevelDB's headers not installed (apt-get install libleveldb-dev)");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = directory.path().join("leveldb");
    run(plain(&compiler)
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-O2", "-g", "-pthread", "-o"])
        .arg(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/leveldb.cc"))
        .arg("-lleveldb"))
    .success("g++");
    let outcome = |mut command: Command, name: &str| {
        run(command.arg(directory.path().join(name))).success("leveldb.cc, which checks itself")
    };
    let without = outcome(plain(&program), "without");
    let with = outcome(preloaded(&program), "with");
    assert_eq!(without.text(), "verified 6400 keys\n");
    assert_eq!(with.text(), without.text());
    assert_eq!(with.stderr, without.stderr);
}
