//! `unconvoy profile`: reports on profiles with known content, and rejection of bad input. The
//! interposer's own tests check what it records.

mod stage;

use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;

use predicates::prelude::*;
use predicates::str::contains;
use stage::Stage;
use unconvoy_profile::layout::{COUNT_UNIT, MAGIC, VERSION};
use unconvoy_profile::{Kind, Profile, read};

/// A program with a variable that stands for a lock, and two functions.
const SOURCE: &str = "
int queue_lock[10];
void wait_here(void) { queue_lock[0]++; }
void hold_here(void) { queue_lock[1]++; }
int main(void) { return 0; }
";

/// A profile of a program that is mapped at [`BASE`].
struct Known {
    stage: Stage,
    profile: Box<Profile>,
    symbols: Vec<(String, u64)>,
}

const BASE: u64 = 0x5500_0000_0000;

impl Known {
    fn new() -> Self {
        let stage = Stage::new();
        let source = stage.write("server.c", SOURCE);
        let program = stage.compile("server", &source, &["-pie", "-fPIE"]).expect("a C compiler");
        let profile = read::zeroed();
        profile.header.magic.store(MAGIC, Relaxed);
        profile.header.version.store(VERSION, Relaxed);
        profile.header.ended.store(1, Relaxed);
        profile.header.unwinds.store(1, Relaxed);
        profile.header.period_ns.store(1_000_000, Relaxed);
        profile.header.last_ns.store(2_000_000_000, Relaxed);
        let text = |to: &[std::sync::atomic::AtomicU8], from: &str| {
            to.iter().zip(from.bytes()).for_each(|(to, byte)| to.store(byte, Relaxed));
        };
        text(&profile.header.lock, "libc");
        text(&profile.header.program, program.to_str().unwrap());
        let end = BASE + 0x10_0000;
        let maps = format!("{BASE:x}-{end:x} r-xp 00000000 08:01 5 {}\n", program.display());
        text(&profile.modules, &maps);
        profile.header.modules_used.store(maps.len() as u32, Relaxed);
        let symbols = symbols(&program);
        Known { stage, profile, symbols }
    }

    fn address(&self, name: &str) -> u64 {
        BASE + self.symbols.iter().find(|(other, _)| other == name).expect("a symbol").1
    }

    /// Records waits for `queue_lock`, for two locks on the heap with the same origin, and for a
    /// signal.
    fn with_waits(self) -> Self {
        let waiter = self.profile.stack(&[self.address("wait_here") + 2], 0);
        let holder = self.profile.stack(&[self.address("hold_here") + 2], 0);
        let origin = self.profile.stack(&[self.address("main") + 2], 0);
        let queue = self.address("queue_lock") as usize;
        for (address, ns) in [(queue, 30_000_000), (0x1000, 6_000_000), (0x2000, 4_000_000)] {
            let (index, lock) = self.profile.lock(Kind::Mutex, address).unwrap();
            self.profile.record_wait(lock, ns, 1_000, false);
            self.profile.record_hold(lock, 1_000_000);
            self.profile.add_sample(index, (waiter, holder), ns, COUNT_UNIT);
            if address < 0x3000 {
                self.profile.record_origin(address, origin);
            }
        }
        let (index, cond) = self.profile.lock(Kind::Cond, queue + 4).unwrap();
        self.profile.record_wait(cond, 900_000_000, 1_000, false);
        self.profile.add_sample(index, (waiter, 0), 900_000_000, COUNT_UNIT);
        self
    }

    fn report(&self, arguments: &[&str]) -> String {
        let path = self.stage.path("locks.profile");
        std::fs::write(&path, self.profile.to_bytes()).unwrap();
        let mut command = self.stage.unconvoy();
        command.args(["profile", "--read", "locks.profile"]).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

fn symbols(program: &PathBuf) -> Vec<(String, u64)> {
    use object::{Object, ObjectSymbol};
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    file.symbols()
        .map(|symbol| (symbol.name().unwrap_or_default().to_string(), symbol.address()))
        .collect()
}

#[test]
fn summary_names_locks_and_places_within_100_columns() {
    let known = Known::new().with_waits();
    let text = known.report(&[]);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for part in [
        "40.0 ms of waiting in 3 waits for 3 locks",
        "\nqueue_lock\n",
        "2 x mutex initialised in main+0x2 in server",
        "75 %",
        "25 %",
        "waits in  wait_here in server",
        "held by   hold_here in server",
        "waits for a signal",
        "900 ms",
        "Shorten what hold_here in server does while it holds queue_lock.",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    let single = known.report(&["--by", "lock", "--top", "1"]);
    assert!(single.contains("2 more: raise --top") && !single.contains("2 x"), "{single}");
    let waiters = known.report(&["--by", "waiter"]);
    assert!(waiters.contains("waiting place") && !waiters.contains("queue_lock\n"), "{waiters}");
}

#[test]
fn files_hold_what_the_summary_says() {
    let known = Known::new().with_waits();
    known.report(&[
        "--json",
        "locks.json",
        "--csv",
        "locks.csv",
        "--folded",
        "waiters.txt",
        "--folded-holders",
        "holders.txt",
    ]);
    let json: serde_json::Value = serde_json::from_str(&known.stage.read("locks.json")).unwrap();
    assert_eq!(json["schema"], "unconvoy-profile-1");
    assert_eq!(json["complete"], true);
    let class = json["classes"].as_array().unwrap().iter().find(|class| class["locks"] == 2);
    assert_eq!(class.unwrap()["waited_ns"], 10_000_000);
    assert_eq!(json["holders"][0]["ns"], 40_000_000);
    let row = json["locks"].as_array().unwrap().iter().find(|row| row["name"] == "queue_lock");
    let counts = row.unwrap()["wait"]["histogram"].as_array().unwrap();
    assert_eq!((counts.len(), &counts[0][1]), (1, &serde_json::json!(1)));
    let csv = known.stage.read("locks.csv");
    assert_eq!(csv.lines().count(), 5, "{csv}");
    assert!(csv.contains("queue_lock,mutex,"), "{csv}");
    let waiters = known.stage.read("waiters.txt");
    assert!(waiters.contains("wait_here in server;queue_lock 30000\n"), "{waiters}");
    let holders = known.stage.read("holders.txt");
    assert!(holders.contains("hold_here in server;queue_lock 30000\n"), "{holders}");
}

#[test]
fn profile_without_waits_says_so() {
    let text = Known::new().report(&["--json", "empty.json"]);
    assert!(text.contains("no lock was waited for"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn unfinished_profile_and_lost_waits_are_remarked() {
    let known = Known::new().with_waits();
    known.profile.header.ended.store(0, Relaxed);
    known.profile.header.lost_stacks.store(7, Relaxed);
    known.profile.header.registered.store(1, Relaxed);
    let text = known.report(&[]);
    for remark in ["profile so far", "7 stacks did not fit", "registered generated code"] {
        assert!(text.contains(remark), "{remark}: {text}");
    }
}

#[test]
fn program_without_symbols_is_remarked() {
    let known = Known::new().with_waits();
    let stripped = std::process::Command::new("strip").arg(known.stage.path("server")).status();
    assert!(stripped.is_ok_and(|status| status.success()), "the tests need binutils");
    let text = known.report(&[]);
    assert!(text.contains("server+0x") && text.contains("No symbols for server"), "{text}");
}

/// `debuginfod-find` keeps the debug files that it fetches in its cache.
#[test]
fn debug_file_in_debuginfods_cache_names_stripped_program() {
    use object::Object;
    let known = Known::new().with_waits();
    let program = known.stage.path("server");
    let bytes = std::fs::read(&program).unwrap();
    let id = object::File::parse(&*bytes).unwrap().build_id().unwrap();
    let id = id.expect("gcc and clang of distributions write build ids");
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = known.stage.path("debuginfod_client").join(id);
    std::fs::create_dir_all(&folder).unwrap();
    let debug = folder.join("debuginfo");
    for arguments in [&["--only-keep-debug"][..], &["--strip-all"]] {
        let to = if arguments == ["--strip-all"] { &program } else { &debug };
        let mut command = std::process::Command::new("objcopy");
        let status = command.args(arguments).arg(&program).arg(to).status();
        assert!(status.is_ok_and(|status| status.success()), "the tests need binutils");
    }
    let path = known.stage.path("locks.profile");
    std::fs::write(&path, known.profile.to_bytes()).unwrap();
    let report = |variable: &str, cache: PathBuf| {
        let mut command = known.stage.unconvoy();
        command.env_remove("DEBUGINFOD_CACHE_PATH").env(variable, cache);
        command.args(["profile", "--read", "locks.profile"]);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    for (variable, cache) in
        [("XDG_CACHE_HOME", ""), ("DEBUGINFOD_CACHE_PATH", "debuginfod_client")]
    {
        let text = report(variable, known.stage.path(cache));
        assert!(text.contains("\nqueue_lock\n") && text.contains("wait_here in server"), "{text}");
    }
    // The cache remembers by an empty file that no server has the debug file.
    std::fs::write(&debug, "").unwrap();
    let text = report("XDG_CACHE_HOME", known.stage.path(""));
    assert!(text.contains("No symbols for server"), "{text}");
}

#[test]
fn text_option_writes_report_to_file() {
    let known = Known::new().with_waits();
    let report = known.report(&[]);
    assert_eq!(known.report(&["--text", "report.txt"]), "");
    assert_eq!(known.stage.read("report.txt"), report);
}

#[test]
fn short_waits_give_no_advice() {
    let known = Known::new().with_waits();
    known.profile.header.last_ns.store(5_000_000_000, Relaxed);
    let text = known.report(&[]);
    let little = "Other locks can gain little: all threads together waited for 40.0 ms of 5.00 s.";
    assert!(text.contains(little) && !text.contains("Shorten"), "{text}");
}

#[test]
fn bad_input_is_rejected_with_reason() {
    let known = Known::new();
    let stage = &known.stage;
    let mut other = known.profile.to_bytes();
    other[8] = 77;
    std::fs::write(stage.path("other"), &other).unwrap();
    std::fs::write(stage.path("short"), &known.profile.to_bytes()[..9000]).unwrap();
    stage.write("text", "what is this?");
    for (arguments, status, message) in [
        (&["--read", "other"][..], 1, "version 77"),
        (&["--read", "short"], 1, "truncated"),
        (&["--read", "text"], 1, "not a lock profile"),
        (&["--read", "missing"], 1, "cannot read missing"),
        (&["--read", "text", "--json", "."], 2, "is a directory"),
        (&["--load", "park", "--", "true"], 2, "--load needs --lock"),
        (&["--lock", "nosuch", "--", "true"], 2, "loiter"),
        (&["--period", "0", "--", "true"], 2, "0.001 to 1000"),
        (&["--read", "text", "--", "true"], 2, "cannot be used"),
        (&["--", "/no/such/program"], 127, "not found"),
        (&["--", "/etc/passwd"], 126, "cannot execute"),
    ] {
        let mut command = stage.unconvoy();
        command.arg("profile").args(arguments).assert().code(status).stderr(contains(message));
    }
}

#[test]
fn program_that_loads_no_interposer_has_no_profile() {
    let stage = Stage::new();
    // The test's stand-in for the interposer records nothing.
    let mut command = stage.unconvoy();
    let output = command.args(["profile", "--", "sh", "-c", "exit 3"]).assert();
    output.code(1).stderr(contains("no profile")).stdout(predicate::str::is_empty());
}

#[test]
fn program_gets_settings_of_the_profile() {
    let stage = Stage::new();
    let show = stage.script("show", "#!/bin/sh\nenv | grep UNCONVOY_ | sort > shown\n");
    let mut command = stage.unconvoy();
    command.args(["profile", "--period", "0.5", "-o", "kept", "--"]).arg(&show).assert().code(1);
    let shown = stage.read("shown");
    for line in ["UNCONVOY_REPLACE=0", "UNCONVOY_PROFILE_PERIOD_MS=0.5", "/kept"] {
        assert!(shown.contains(line), "no {line} in:\n{shown}");
    }
    let mut command = stage.unconvoy();
    command.args(["profile", "--lock", "mcs", "--load", "park", "--"]).arg(&show).assert().code(1);
    let shown = stage.read("shown");
    assert!(shown.contains("UNCONVOY_LOCK=mcs") && shown.contains("UNCONVOY_LOAD=park"), "{shown}");
    assert!(!shown.contains("UNCONVOY_REPLACE"), "{shown}");
}

#[test]
fn waits_without_stack_count_for_known_stacks_of_same_lock() {
    let known = Known::new();
    let (waiter, holder) = (known.address("wait_here") + 2, known.address("hold_here") + 2);
    let (waiter, holder) = (known.profile.stack(&[waiter], 0), known.profile.stack(&[holder], 0));
    let queue = known.address("queue_lock") as usize;
    let (index, lock) = known.profile.lock(Kind::Mutex, queue).unwrap();
    for _ in 0..4 {
        known.profile.record_wait(lock, 10_000_000, 1_000, false);
    }
    known.profile.add_sample(index, (waiter, holder), 10_000_000, COUNT_UNIT);
    known.profile.add_sample(index, (0, 0), 30_000_000, 3 * COUNT_UNIT);
    // A lock without any known stack.
    let (index, lock) = known.profile.lock(Kind::Mutex, 0x1000).unwrap();
    known.profile.record_wait(lock, 10_000_000, 1_000, false);
    known.profile.add_sample(index, (0, 0), 10_000_000, COUNT_UNIT);
    let text = known.report(&["--json", "locks.json", "--folded", "waiters.txt"]);
    assert!(text.contains("mutex without a sampled wait"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&known.stage.read("locks.json")).unwrap();
    let holder = &json["holders"][0];
    assert_eq!((&holder["ns"], &holder["share"]), (&40_000_000.into(), &0.8.into()), "{holder}");
    assert_eq!(holder["waits"], 4.0, "{holder}");
    let waiters = known.stage.read("waiters.txt");
    assert!(waiters.contains("wait_here in server;queue_lock 40000\n"), "{waiters}");
    assert!(waiters.contains("unknown;mutex without a sampled wait 10000\n"), "{waiters}");
}

#[test]
fn graphs_and_page_show_every_lock_and_place() {
    let known = Known::new().with_waits();
    known.report(&["--flamegraph", "f.svg", "--firefox", "f.json", "--html", "f.html"]);
    let (svg, page) = (known.stage.read("f.svg"), known.stage.read("f.html"));
    for text in [&svg, &page] {
        for part in ["queue_lock", "wait_here in server", "hold_here in server"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }
    let widths: Vec<f64> = svg
        .split("class=\"f l")
        .skip(1)
        .map(|lock| lock.split("width=\"").nth(1).unwrap().split('%').next().unwrap())
        .map(|width| width.parse().unwrap())
        .collect();
    assert_eq!(widths, [75.0, 25.0]);
    assert!(!page.contains("http") && !page.contains("src="), "the page needs other files");
    let firefox: serde_json::Value = serde_json::from_str(&known.stage.read("f.json")).unwrap();
    let threads = firefox["threads"].as_array().unwrap();
    let main = threads.iter().find(|thread| thread["isMainThread"] == true).unwrap();
    let weights = main["samples"]["weight"].as_array().unwrap();
    let sum: f64 = weights.iter().map(|weight| weight.as_f64().unwrap()).sum();
    assert_eq!((sum, &main["samples"]["weightType"]), (40.0, &"tracing-ms".into()));
}

#[test]
fn profile_without_waits_has_valid_files() {
    let known = Known::new();
    known.report(&["--flamegraph", "f.svg", "--firefox", "f.json", "--html", "f.html"]);
    assert!(known.stage.read("f.svg").ends_with("</svg>\n"));
    assert!(known.stage.read("f.html").contains("no lock was waited for"));
    assert!(serde_json::from_str::<serde_json::Value>(&known.stage.read("f.json")).is_ok());
}

/// A script that uses the page as a person would, and reports faults in the page's title.
const USER: &str = "<script>
const wrong = [];
const check = (holds, what) => { if (!holds) wrong.push(what); };
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
const page = document.documentElement;
check(page.scrollWidth <= innerWidth, page.scrollWidth + ' wide in ' + innerWidth);
const dark = matchMedia('(prefers-color-scheme: dark)').matches;
const light = c => c.match(/[0-9.]+/g).slice(0, 3).reduce((sum, part) => sum + +part, 0) > 380;
check(light(getComputedStyle(document.body).color) === dark, 'text colour');
document.title = 'wrong: ' + wrong.join('; ') + '|' + innerWidth + '|' + dark;
</script>";

#[test]
#[ignore = "make test-all: needs browsers"]
fn page_works_in_browser_in_every_size_and_colour() {
    let known = Known::new().with_waits();
    known.report(&["--html", "page.html"]);
    let page = known.stage.read("page.html").replace("</body>", &format!("{USER}</body>"));
    known.stage.write("page.html", &page);
    for (width, scheme, expected) in [
        (400, 1, "400|false"),
        (1600, 1, "1600|false"),
        (400, 0, "400|true"),
        (1000, 0, "1000|true"),
    ] {
        // A window is at least 500 pixels wide, but a frame in it can be narrower.
        let frame = format!(
            "<!doctype html><style>:root {{ color-scheme: light dark; }}</style>\
             <iframe id=page width={width} height=900 style='border: 0' src=page.html></iframe>\
             <script>page.onload = () => document.title = page.contentDocument.title;</script>"
        );
        let outer = known.stage.write("outer.html", &frame);
        let mut command = std::process::Command::new("/usr/bin/chromium");
        command
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--dump-dom"])
            .args(["--window-size=1700,1000", "--allow-file-access-from-files"])
            .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
            .arg(format!("--user-data-dir={}", known.stage.path("browser").display()))
            .arg(format!("file://{}", outer.display()));
        let Ok(output) = command.output() else {
            println!("missing: chromium not installed (apt-get install chromium)");
            return;
        };
        let dom = String::from_utf8_lossy(&output.stdout);
        let title = dom.split("<title>").nth(1).and_then(|rest| rest.split('<').next());
        assert_eq!(title, Some(&*format!("wrong: |{expected}")), "{dom}");
    }
}

#[test]
#[ignore = "make test-all: needs Go and its proxy"]
fn pprof_reads_contentions_and_delay() {
    let known = Known::new().with_waits();
    known.report(&["--pprof", "waits.pb"]);
    let mut command = std::process::Command::new("go");
    command.args(["run", "github.com/google/pprof@latest", "-raw"]);
    let Ok(output) = command.arg(known.stage.path("waits.pb")).output() else {
        println!("missing: go not installed (apt-get install golang-go)");
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
