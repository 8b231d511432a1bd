//! Large programs from Debian's packages, with their own locks, allocators, thread pools and
//! sandboxes: each runs without and with the library, and the results are compared. `packages.txt`
//! lists the packages. A missing program is skipped with a message.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use support::{LIMIT, Running, installed, plain, preloaded, run};

/* ---- Chromium ---- */

/// Time limit for a browser on a slow machine; a browser restarts crashed renderers forever.
const BROWSER_LIMIT: Duration = Duration::from_secs(40);

const WORKERS: u32 = 6;
const ROUNDS: u32 = 1500;

/// Workers that count under a lock built from `Atomics.wait` and `Atomics.notify`, which V8
/// implements with mutexes and condition variables. Each worker also computes a sequence of
/// pseudo-random numbers, and the page then paints the last number of each. The server holds the
/// image back until then, so that the page does not finish loading before.
const PAGE: &str = r#"<!doctype html><meta charset="utf-8"><title>workers</title>
<style>body { margin: 0; background: #fff; font: 16px monospace }</style>
<canvas id="drawing" width="320" height="200"></canvas><pre id="out">pending</pre><img
src="/held" alt="">
<script>
const source = `onmessage = ({ data: [worker, rounds, shared] }) => {
  let x = worker + 1;
  for (let i = 0; i < rounds; i++) {
    for (let k = 0; k < 50; k++) x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
    if (Atomics.compareExchange(shared, 0, 0, 1) != 0)
      while (Atomics.exchange(shared, 0, 2) != 0) Atomics.wait(shared, 0, 2);
    shared[1] = shared[1] + 1;
    if (Atomics.exchange(shared, 0, 0) == 2) Atomics.notify(shared, 0, 1);
  }
  postMessage([worker, x]);
}`;
const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
const shared = new Int32Array(new SharedArrayBuffer(8)), done = [];
function finish(text) {
  document.getElementById("out").textContent = text;
  const canvas = document.getElementById("drawing").getContext("2d");
  for (const [worker, x] of done) {
    canvas.fillStyle = `rgb(${x >>> 24}, ${x >>> 16 & 255}, ${x >>> 8 & 255})`;
    canvas.fillRect(worker * 50, 0, 45, 200);
  }
  fetch("/result", { method: "POST", body: text });
}
for (let worker = 0; worker < WORKERS; worker++) {
  const thread = new Worker(url);
  thread.onerror = event => finish("error " + event.message);
  thread.onmessage = event => {
    done.push(event.data);
    if (done.length < WORKERS) return;
    done.sort((a, b) => a[0] - b[0]);
    finish("counted " + shared[1] + done.map(([worker, x]) => `, ${worker} drew ${x}`).join(""));
  };
  thread.postMessage([worker, ROUNDS, shared]);
}
</script>
"#;

/// The text that the page shows at the end.
fn drawn() -> String {
    let mut text = format!("counted {}", WORKERS * ROUNDS);
    for worker in 0..WORKERS {
        let x = (0..ROUNDS * 50)
            .fold(worker + 1, |x, _| x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        text += &format!(", {worker} drew {x}");
    }
    text
}

/// The text that the page sent; `None` until then.
type Said = Arc<(Mutex<Option<String>>, Condvar)>;

/// Serves the page on a free port of the loopback interface until the test process ends.
fn serve_page() -> (u16, Said) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let said = Said::default();
    let shared = Arc::clone(&said);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let said = Arc::clone(&shared);
            // If a browser disconnects during an answer, its own test fails.
            std::thread::spawn(move || answer(stream, &said));
        }
    });
    (port, said)
}

fn answer(mut stream: TcpStream, said: &Said) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut length = 0;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    let mut body = String::new();
    reader.take(length).read_to_string(&mut body)?;
    let (text, changed) = &**said;
    let (status, page) = match request.split(' ').nth(1) {
        Some("/") => {
            let page = PAGE
                .replace("WORKERS", &WORKERS.to_string())
                .replace("ROUNDS", &ROUNDS.to_string());
            ("200 OK", page)
        }
        Some("/held") => {
            let guard = text.lock().expect("no thread panicked");
            let _ = changed.wait_timeout_while(guard, LIMIT, |text| text.is_none());
            ("404 Not Found", String::new())
        }
        Some("/result") => {
            *text.lock().expect("no thread panicked") = Some(body);
            changed.notify_all();
            ("200 OK", String::new())
        }
        _ => ("404 Not Found", String::new()),
    };
    // Browsers require these two policies for shared memory.
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\
         Connection: close\r\nCross-Origin-Opener-Policy: same-origin\r\n\
         Cross-Origin-Embedder-Policy: require-corp\r\n\r\n{page}",
        page.len()
    )
}

/// The files of one browser, in a directory that the browser's user can read.
struct Browser {
    directory: tempfile::TempDir,
    path: PathBuf,
    sandboxed: bool,
}

/// The id of the user `nobody`; it need not exist.
const NOBODY: u32 = 65534;

struct Rendered {
    document: String,
    screenshot: Vec<u8>,
}

impl Browser {
    fn find(sandboxed: bool) -> Option<Self> {
        let path = installed("chromium", "chromium")?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        if sandboxed && rustix::process::geteuid().is_root() {
            chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("root may chown");
        }
        Some(Browser { directory, path, sandboxed })
    }

    /// Renders the page, with `library` preloaded if given. `None` if the kernel supports no
    /// sandbox.
    #[track_caller]
    fn render(&self, name: &str, library: Option<&Path>) -> Option<Rendered> {
        let (port, said) = serve_page();
        let profile = self.directory.path().join(name);
        let picture = self.directory.path().join(format!("{name}.png"));
        let mut command = plain(&self.path);
        command
            .args(["--headless", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .args([
                "--disable-breakpad",
                "--disable-crash-reporter",
                "--window-size=400,400",
                "--dump-dom",
            ])
            // A browser that cannot start its renderers logs that a thousand times a second.
            .arg("--log-level=3")
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(format!("--screenshot={}", picture.display()))
            .arg(format!("http://127.0.0.1:{port}/"))
            .env("HOME", self.directory.path())
            .current_dir(self.directory.path());
        if let Some(library) = library {
            command.env("LD_PRELOAD", library);
        }
        if !self.sandboxed {
            command.arg("--no-sandbox");
        } else if rustix::process::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        let running = Running::start(&mut command);
        let finished = running.finish(BROWSER_LIMIT);
        if self.sandboxed && finished.stderr.contains("No usable sandbox") {
            return None;
        }
        let finished = finished.success(name);
        let received = said.0.lock().expect("no thread panicked").clone();
        assert_eq!(received, Some(drawn()), "{name}: the page\n{}", finished.both());
        let screenshot = fs::read(picture).expect("chromium writes a screenshot");
        Some(Rendered { document: finished.text(), screenshot })
    }

    #[track_caller]
    fn compare(&self) {
        // The browser's user must be able to read the library, and the build directory may be
        // private.
        let library = self.directory.path().join("libunconvoy.so");
        fs::copy(support::library(), &library).expect("a copy of the library");
        fs::set_permissions(&library, fs::Permissions::from_mode(0o755)).expect("the copy is ours");
        let Some(without) = self.render("without", None) else {
            println!("skipped: chromium finds no usable sandbox here");
            return;
        };
        let with =
            self.render("with", Some(&library)).expect("the run without the library had a sandbox");
        assert!(without.document.contains(&drawn()), "{}", without.document);
        assert_eq!(without.document, with.document);
        assert!(without.screenshot.starts_with(b"\x89PNG") && without.screenshot.len() > 1000);
        assert!(without.screenshot == with.screenshot, "the page looks different");
    }
}

#[test]
#[ignore = "make test-all: needs browsers, a JVM and others"]
fn chromium_renders_same_page() {
    if let Some(browser) = Browser::find(false) {
        browser.compare();
    }
}

/// Runs the browser as users do: with renderers in their own namespaces, without files, and under a
/// seccomp filter that kills a process for any system call off its list.
#[test]
#[ignore = "make test-all: needs browsers, a JVM and others"]
fn sandboxed_chromium_renders_same_page() {
    if let Some(browser) = Browser::find(true) {
        browser.compare();
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
    let (Some(compiler), Some(path)) =
        (installed("javac", "default-jdk-headless"), installed("java", "default-jdk-headless"))
    else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/Contention.java");
    run(plain(&compiler).arg("-d").arg(directory.path()).arg(source)).success("javac");
    for collector in ["-XX:+UseG1GC", "-XX:+UseParallelGC"] {
        let outcome = |mut command: Command| {
            command
                .args([collector, "-XX:ParallelGCThreads=4", "-XX:-UsePerfData", "-Xmx64m", "-cp"])
                .arg(directory.path())
                .arg("Contention")
                .current_dir(directory.path());
            run(&mut command).success(collector)
        };
        let without = outcome(plain(&path));
        let with = outcome(preloaded(&path));
        assert_eq!(without.text().lines().count(), 5, "{}", without.both());
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
