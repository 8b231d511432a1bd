//! Chromium, and a page whose content depends on workers that share a lock.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::support::{self, LIMIT, Running, installed, plain};

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
pub fn drawn() -> String {
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
pub struct Browser {
    directory: tempfile::TempDir,
    path: PathBuf,
    sandboxed: bool,
    pub limit: Duration,
}

/// The id of the user `nobody`; it need not exist.
const NOBODY: u32 = 65534;

pub struct Rendered {
    pub document: String,
    pub screenshot: Vec<u8>,
}

impl Browser {
    pub fn find(sandboxed: bool) -> Option<Self> {
        let path = installed("chromium", "chromium")?;
        let directory = tempfile::tempdir().expect("a temporary directory");
        if sandboxed && rustix::process::geteuid().is_root() {
            chown(directory.path(), Some(NOBODY), Some(NOBODY)).expect("root may chown");
        }
        Some(Browser { directory, path, sandboxed, limit: BROWSER_LIMIT })
    }

    /// A copy of the library in the browser's directory: the browser's user must be able to read
    /// it, and the build directory may be private.
    pub fn library(&self) -> PathBuf {
        let copy = self.directory.path().join("libunconvoy.so");
        fs::copy(support::library(), &copy).expect("a copy of the library");
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).expect("the copy is ours");
        copy
    }

    /// Renders the page, with `library` preloaded if given. Calls `beside` once the browser runs,
    /// and drops its value when the browser has ended. Returns `None` if the kernel supports no
    /// sandbox.
    #[track_caller]
    pub fn render<T>(
        &self,
        name: &str,
        library: Option<&Path>,
        beside: impl FnOnce(&Running) -> T,
    ) -> Option<Rendered> {
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
        let beside = beside(&running);
        let finished = running.finish(self.limit);
        drop(beside);
        if self.sandboxed && finished.stderr.contains("No usable sandbox") {
            return None;
        }
        let finished = finished.success(name);
        let received = said.0.lock().expect("no thread panicked").clone();
        assert_eq!(received, Some(drawn()), "{name}: the page\n{}", finished.both());
        let screenshot = fs::read(picture).expect("chromium writes a screenshot");
        Some(Rendered { document: finished.text(), screenshot })
    }
}
