//! Files of `unconvoy profile` in the programs that people open them with.

mod known;
mod stage;

use std::fs::create_dir_all;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use known::Known;
use serde_json::Value;
use unconvoy_profile::Kind;

/// A script that uses the page as a person would.
const USER: &str = "
const rows = () => [...document.querySelectorAll('#locks > tbody summary')];
const names = () => rows().map(row => row.textContent);
const first = names();
check(first.length === 2 && first[0] === 'queue_lock', 'order ' + first);
const heading = [...document.querySelectorAll('#locks thead button')][1];
heading.click(); heading.click();
check(names()[1] === 'queue_lock', 'sorted ' + names());
document.querySelector('#locks details').open = true;
check(document.querySelector('#locks details').innerText.includes('waits in'), 'details');
const frames = [...document.querySelectorAll('#flame svg.f')];
const frame = frames.find(f => f.textContent.includes('wait_here') && +f.dataset.w < 50);
frame.dispatchEvent(new Event('click'));
const width = e => e.getBoundingClientRect().width;
check(Math.abs(width(frame) - width(document.getElementById('flame'))) < 2, 'zoom');
frame.dispatchEvent(new Event('click'));
findFrames('hold_here');
check(document.querySelectorAll('.found').length === 2, 'found');
check(document.querySelectorAll('#waits line').length > 0, 'graph of waits');
";

#[test]
#[ignore = "make test-all: needs browsers"]
fn page_works_in_browser_in_every_size_and_colour() {
    let known = Known::new().with_waits();
    known.report(&["--html", "page.html"]);
    known.stage.check_in_browser("page.html", USER);
}

#[test]
#[ignore = "make test-all: needs Go"]
fn pprof_reads_contentions_and_delay() {
    let known = Known::new().with_waits();
    known.report(&["--pprof", "waits.pb"]);
    let mut command = Command::new("go");
    // Debian's sources, which need no network.
    command.env("GO111MODULE", "off").env("GOPATH", "/usr/share/gocode");
    command.args(["run", "github.com/google/pprof", "-raw"]);
    let output = command.arg(known.stage.path("waits.pb")).output();
    let has_sources = Path::new("/usr/share/gocode/src/github.com/google/pprof").exists();
    let Some(output) = output.ok().filter(|_| has_sources) else {
        println!("missing: go or pprof (apt-get install golang-go golang-github-google-pprof-dev)");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    for part in
        ["contentions/count delay/nanoseconds", "30000000: ", "lock:[queue_lock]", "wait_here"]
    {
        assert!(
            text.contains(part),
            "no {part} in {text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// The Firefox Profiler without its screen: it loads files with the same code as
/// profiler.firefox.com, and prints what the screen would show.
struct FirefoxProfiler {
    script: PathBuf,
    sessions: PathBuf,
}

/// The profiler's package, and the checksum of this version.
const PACKAGE: &str =
    "https://registry.npmjs.org/@firefox-devtools/profiler-cli/-/profiler-cli-0.10.0.tgz";
const PACKAGE_SHA256: &str = "41a25d3ef0c1131f5286eb098489f2868d7b9a627424023fc6e7aff9a33f85e2";

impl FirefoxProfiler {
    /// Fetches the package. `Err`: what is missing here.
    fn fetch(known: &Known) -> Result<Self, String> {
        let node = Command::new("node").arg("--version").output();
        node.map_err(|_| "node not installed (apt-get install nodejs)".to_string())?;
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("profiler-cli-0.10.0");
        let script = folder.join("package/dist/profiler-cli.js");
        if !script.exists() {
            create_dir_all(&folder).map_err(|error| error.to_string())?;
            let fetch = format!(
                "curl -fsS --max-time 120 -o p.tgz {PACKAGE} && \
                 echo '{PACKAGE_SHA256}  p.tgz' | sha256sum --quiet -c && tar xzf p.tgz"
            );
            let output = Command::new("sh").args(["-c", &fetch]).current_dir(&folder).output();
            let output = output.map_err(|error| error.to_string())?;
            if !script.exists() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
        }
        Ok(FirefoxProfiler { script, sessions: known.stage.path("sessions") })
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.args(["60", "node"]).arg(&self.script).args(arguments);
        command.env("PROFILER_CLI_SESSION_DIR", &self.sessions).output().unwrap()
    }

    /// Loads a file. The program waits for half a second until its own server is ready, which on a
    /// busy machine is too short.
    fn load(&self, file: &Path) {
        let arguments = ["load", file.to_str().unwrap()];
        let loads = (0..20).map(|_| self.output(&arguments));
        let failed: Vec<Output> = loads.take_while(|output| !output.status.success()).collect();
        assert!(failed.len() < 20, "{:?}", failed.last());
    }

    fn ask(&self, arguments: &[&str]) -> Value {
        let output = self.output(&[arguments, &["--json"]].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}

impl Drop for FirefoxProfiler {
    fn drop(&mut self) {
        self.output(&["stop", "--all"]);
    }
}

#[test]
#[ignore = "make test-all: needs Node.js and its registry"]
fn firefox_profiler_shows_stacks_by_waiting_and_longest_waits() {
    let known = Known::new().with_waits();
    let (index, _) = known.profile.lock(Kind::Mutex, known.address("queue_lock") as usize).unwrap();
    let stack = known.profile.stack(&[known.address("wait_here") + 2], 0);
    known.profile.record_long_wait(25_000_000, 90_000_000, index, stack, 77);
    known.report(&["--firefox", "f.json"]);
    let firefox = match FirefoxProfiler::fetch(&known) {
        Ok(firefox) => firefox,
        Err(what) => return println!("missing: {what}"),
    };
    firefox.load(&known.stage.path("f.json"));
    let found = firefox.ask(&["thread", "functions"]);
    assert_eq!(found["weightType"], "tracing-ms", "{found}");
    let functions = found["functions"].as_array().unwrap();
    let total = |name: &str| {
        let function = functions.iter().find(|function| function["name"] == name);
        function.unwrap_or_else(|| panic!("no {name} in {found}"))["totalSamples"].as_f64().unwrap()
    };
    assert_eq!((total("wait_here in server"), total("queue_lock")), (40.0, 30.0));
    let markers = firefox.ask(&["profile", "markers", "--search", "queue_lock"]).to_string();
    for part in ["LockWait", "wait_here in server", "25"] {
        assert!(markers.contains(part), "no {part} in {markers}");
    }
}
