//! The scheduler schedules a stock Debian kernel in QEMU.
//!
//! The guest (guest/init and a script of a test's own) does things and says what it sees; what it must see is here. Who runs where
//! is the kernel's word, from its trace point `sched_switch`, and not the scheduler's.
//!
//! Takes the kernel and the QEMU that `make kernel` fetches (`target/kernel`, or the directory that `UNCONVOY_KERNEL` names; a QEMU in `PATH` will do, too),
//! a static busybox and a C compiler; without one of them the tests say so and are skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const PROCESSORS: u32 = 8;

/// In MiB.
const MEMORY: u32 = 2048;

/// Several times what it takes on two slow processors.
const PATIENCE: Duration = Duration::from_secs(300);

/// The guest's own shell, and what it has just begun, may be lock-intensive: a processor whose lock another one waits for does not always have one of the host's.
const SHELLS: u64 = 2;

/// Two guests at once would be of so many processors more, for which the host has none.
static TURN: Mutex<()> = Mutex::new(());

/// What the guest said: observations by name, and files.
struct Said {
    console: String,
    words: BTreeMap<String, Vec<String>>,
    files: BTreeMap<String, String>,
}

impl Said {
    fn words(&self, name: &str) -> &[String] {
        self.words.get(name).unwrap_or_else(|| panic!("no {name} in:\n{}", self.console))
    }

    fn file(&self, name: &str) -> &str {
        self.files.get(name).unwrap_or_else(|| panic!("no {name} in:\n{}", self.console))
    }

    fn numbers(&self, name: &str) -> Vec<u64> {
        self.words(name).iter().map(|word| word.parse().unwrap_or_else(|_| panic!("{name}: {word}"))).collect()
    }

    fn metric(&self, name: &str) -> u64 {
        let prefix = format!("unconvoy_sched_{name} ");
        let line = self.file("metrics").lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("no metric {name}")).parse().expect("a number")
    }

    /// There was no load, and both sides agree on it.
    fn only_shells(&self, name: &str) {
        let (tasks, special) = (self.numbers(name)[0], self.numbers(name)[1]);
        assert!(tasks <= SHELLS && tasks == special, "{name}: {tasks}, {special}\n{}", self.console);
    }

    /// Operations of a load, the fewest of one thread, and its threads.
    fn load(&self, name: &str) -> (u64, u64, BTreeSet<u64>) {
        let mut numbers = self.file(name).split_whitespace().skip(1).map(|word| word.parse().expect("a number"));
        let mut next = || numbers.next().unwrap_or_else(|| panic!("{name} did not end:\n{}", self.console));
        (next(), next(), numbers.collect())
    }

    /// Each thread of a load had a part of what its threads had on average.
    fn nobody_starves(&self, loads: &[&str]) {
        for name in loads {
            let (operations, least, threads) = self.load(name);
            assert!(least * threads.len() as u64 * 8 > operations, "{name}: {least} of {operations}\n{}", self.console);
        }
    }

    /// Switches to each of `threads`, by processor.
    fn switches(&self, name: &str, threads: &BTreeSet<u64>) -> BTreeMap<u64, u64> {
        let mut switches = BTreeMap::new();
        for line in self.file(name).lines() {
            let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
            if threads.contains(&numbers[0]) {
                *switches.entry(numbers[1]).or_default() += numbers[2];
            }
        }
        switches
    }
}

/// What a guest is made of.
struct Parts {
    kernel: PathBuf,
    qemu: PathBuf,
    /// Of a QEMU that is not installed.
    firmware: Vec<PathBuf>,
}

/// Where they are, or what is missing.
fn parts() -> Result<Parts, String> {
    let directory = std::env::var_os("UNCONVOY_KERNEL")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kernel"), PathBuf::from);
    let kernel = directory.join("vmlinuz");
    if !kernel.is_file() {
        return Err(format!("{} is missing: make kernel, or UNCONVOY_KERNEL=DIRECTORY", kernel.display()));
    }
    let runs = |program: &Path| {
        Command::new(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    for (program, package) in [("gcc", "gcc"), ("busybox", "busybox-static")] {
        if !runs(Path::new(program)) {
            return Err(format!("{program} is missing: apt-get install {package}"));
        }
    }
    let usr = directory.join("qemu/usr");
    let (own, installed) = (usr.join("bin/qemu-system-x86_64"), PathBuf::from("qemu-system-x86_64"));
    if own.is_file() {
        Ok(Parts { kernel, qemu: own, firmware: vec![usr.join("share/qemu"), usr.join("share/seabios")] })
    } else if runs(&installed) {
        Ok(Parts { kernel, qemu: installed, firmware: Vec::new() })
    } else {
        Err("qemu-system-x86_64 is missing: make kernel".into())
    }
}

/// A machine that is as fast as the host, on which processors run at the same time; and one that executes an instruction a
/// nanosecond, on one of the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    Host,
    Instructions,
}

/// Of what kind a guest is.
#[derive(Debug, Clone, Copy)]
struct Guest {
    processors: u32,
    /// Memory nodes, of as many processors each.
    nodes: u32,
    clock: Clock,
}

impl Guest {
    const USUAL: Guest = Guest { processors: PROCESSORS, nodes: 1, clock: Clock::Host };

    fn nodes(self) -> Vec<String> {
        let (memory, each) = (MEMORY / self.nodes, self.processors / self.nodes);
        let node = |node: u32| {
            let (first, last) = (node * each, (node + 1) * each - 1);
            let memory = ["-object".into(), format!("memory-backend-ram,id=memory{node},size={memory}M")];
            memory
                .into_iter()
                .chain(["-numa".into(), format!("node,nodeid={node},cpus={first}-{last},memdev=memory{node}")])
        };
        (0..self.nodes).flat_map(node).collect()
    }
}

/// Boots the kernel with the scheduler and `job` in its root; `None` if it cannot.
fn boot(job: &str, guest: Guest) -> Option<Said> {
    let parts = match parts() {
        Ok(parts) => parts,
        Err(reason) => {
            println!("skipped: {reason}");
            return None;
        }
    };
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let image = root(directory.path(), job);
    let mut said = run(&parts, &image, &directory.path().join("console"), guest);
    // One boot in some thirty panics on a busy host before anything of ours runs: QEMU executes an instruction that another processor is just patching.
    if !said.words.contains_key("init") && said.console.contains("Kernel panic") {
        println!("the guest panicked while it booted; once more");
        said = run(&parts, &image, &directory.path().join("console"), guest);
    }
    Some(said)
}

fn run(parts: &Parts, image: &Path, console: &Path, guest: Guest) -> Said {
    let mut qemu = Command::new(&parts.qemu);
    for directory in &parts.firmware {
        qemu.arg("-L").arg(directory);
    }
    // `-hypervisor`: in a guest that knows that it is one the kernel takes spin locks in another way, which it does not trace.
    match guest.clock {
        Clock::Host => qemu.args(["-accel", "tcg,thread=multi,tb-size=512"]),
        Clock::Instructions => qemu.args(["-accel", "tcg,thread=single,tb-size=512", "-icount", "shift=0,sleep=off"]),
    };
    qemu.args(["-machine", "q35", "-m", &format!("{MEMORY}M"), "-no-reboot", "-smp", &guest.processors.to_string()])
        .args(guest.nodes())
        .args(["-cpu", "max,-hypervisor,-la57,-smap,-smep,-umip,-pku,-pks"])
        .args(["-nodefaults", "-display", "none", "-serial", &format!("file:{}", console.display())])
        .arg("-kernel")
        .arg(&parts.kernel)
        .arg("-initrd")
        .arg(image)
        .args([
            "-append",
            "console=ttyS0 quiet nokaslr mitigations=off panic=-1 lpj=10000000 tsc=reliable edd=off no_timer_check",
        ])
        .stdin(Stdio::null());
    // SAFETY: between fork and exec this makes one system call, and neither allocates nor locks.
    unsafe { qemu.pre_exec(end_with_us) };
    let mut qemu = qemu.spawn().expect("QEMU starts");
    let start = Instant::now();
    while qemu.try_wait().expect("QEMU is a child").is_none() {
        if start.elapsed() > PATIENCE {
            let _ = qemu.kill();
            let _ = qemu.wait();
            panic!("the guest hangs:\n{}", read(console));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    parse(read(console))
}

/// A test that is killed leaves no machine behind.
fn end_with_us() -> std::io::Result<()> {
    // SAFETY: a request with a signal's number.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn read(console: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(console).unwrap_or_default()).replace('\r', "")
}

fn parse(console: String) -> Said {
    let (mut words, mut files) = (BTreeMap::new(), BTreeMap::new());
    let mut file: Option<(String, String)> = None;
    for line in console.lines() {
        match (&mut file, line.strip_prefix('@')) {
            (Some(_), Some("}")) => files.extend(file.take()),
            (Some((_, text)), _) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, Some(said)) => match said.strip_suffix('{') {
                Some(name) => file = Some((name.to_owned(), String::new())),
                None => {
                    let mut said = said.split_whitespace().map(str::to_owned);
                    words.insert(said.next().unwrap_or_default(), said.collect());
                }
            },
            (None, None) => {}
        }
    }
    Said { console, words, files }
}

/// The guest's root as an image that the kernel unpacks.
fn root(directory: &Path, job: &str) -> PathBuf {
    let root = directory.join("root");
    for name in ["proc", "sys", "dev", "tmp", "bin"] {
        std::fs::create_dir_all(root.join(name)).expect("a directory");
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest");
    let scheduler = Path::new(env!("CARGO_BIN_EXE_unconvoy-sched-ext"));
    let copy = |from: &Path, to: &str| {
        let to = root.join(to);
        std::fs::create_dir_all(to.parent().expect("a file's directory")).expect("a directory");
        std::fs::copy(from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        std::fs::set_permissions(to, PermissionsExt::from_mode(0o755)).expect("its mode");
    };
    copy(&program("busybox"), "bin/busybox");
    copy(scheduler, "bin/unconvoy-sched-ext");
    copy(&sources.join("init"), "init");
    copy(&sources.join(job), "job");
    for library in libraries(scheduler) {
        copy(&library, &library.display().to_string()[1..]);
    }
    let load = root.join("bin/load");
    let compiled = Command::new("gcc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread", "-o"])
        .args([&load, &sources.join("load.c")])
        .status();
    assert!(compiled.expect("gcc runs").success(), "load.c cannot be compiled");
    let image = directory.join("root.cpio");
    let pack = "find . | busybox cpio -o -H newc >\"$1\" 2>/dev/null";
    let packed = Command::new("sh").args(["-c", pack, "sh"]).arg(&image).current_dir(&root).status();
    assert!(packed.expect("sh runs").success(), "the guest's root cannot be packed");
    image
}

fn program(name: &str) -> PathBuf {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths(&directories).map(|directory| directory.join(name));
    paths.find(|path| path.is_file()).unwrap_or_else(|| panic!("{name} is not in PATH"))
}

/// The shared libraries of a program, and their loader.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd runs");
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

#[test]
fn lock_intensive_tasks_keep_to_the_set() {
    let Some(said) = boot("contention.sh", Guest::USUAL) else { return };
    assert_eq!(said.words("before"), ["disabled"]);
    assert_eq!(said.words("loaded")[0], "enabled", "{}", said.console);
    assert!(said.words("loaded")[1].starts_with("unconvoy"), "{}", said.console);
    said.only_shells("quiet");

    // Where they ran, in the kernel's words: all switches of one second, when all were known to be lock-intensive.
    assert!(said.numbers("found")[0] >= 8, "{}", said.console);
    assert_eq!(said.numbers("set.bound"), [3]);
    let switches = |name| said.switches("set.switches", &said.load(name).2);
    let special = switches("files");
    assert!(special.values().sum::<u64>() > 0, "they did not run:\n{}", said.console);
    assert!(special.keys().all(|&cpu| cpu < 3), "{special:?}");
    assert_eq!(switches("first").into_keys().collect::<Vec<_>>(), [0], "its mask is processor 0");
    assert_eq!(switches("last").into_keys().collect::<Vec<_>>(), [7], "its mask is processor 7");
    assert!(switches("apart").keys().all(|&cpu| cpu >= 6), "their mask is processors 6 and 7: {:?}", switches("apart"));

    // Whether in the set, outside of it, or bound to a processor of either.
    said.nobody_starves(&["files", "spin", "first", "last", "apart"]);
    assert_eq!(said.words("status"), ["0"], "Ctrl-C is no failure");
    assert_eq!(said.words("ended"), ["disabled"]);

    // The bound follows the load.
    for (load, fewest) in [("many", 8), ("four", 4)] {
        let tasks = said.numbers(load)[0];
        assert!((fewest..=fewest + SHELLS).contains(&tasks), "{tasks} tasks, not {fewest}:\n{}", said.console);
        let name = format!("{load}.bound");
        let &[bound, before, after] = &said.numbers(&name)[..] else { panic!("no {name}:\n{}", said.console) };
        assert!(bound <= tasks + SHELLS, "{tasks} tasks have {bound} cores");
        assert!(after > before, "the bound did not move:\n{}", said.console);
    }
    said.only_shells("drained");
    said.only_shells("drained.again");

    // Without its user-space side it goes on with what it knows.
    assert_eq!(said.words("stalled")[0], "enabled", "{}", said.console);
    assert_eq!(said.words("stalled.forked"), ["yes"]);
    assert!(said.load("stalled").1 > 0);
    said.only_shells("resumed");
    assert_eq!(said.words("awake")[0], "enabled", "{}", said.console);

    // Processors come and go.
    assert_eq!(said.words("offline")[0], "enabled", "{}", said.console);
    assert_eq!(said.words("offline.cores"), ["7"]);
    assert_eq!(said.words("online")[0], "enabled", "{}", said.console);
    assert_eq!(said.words("online.cores"), ["8"]);

    assert_eq!(said.words("killed"), ["disabled"], "killed, it leaves the default scheduler");
}

#[test]
fn each_memory_node_has_its_queue_and_none_is_forgotten() {
    let Some(said) = boot("nodes.sh", Guest { nodes: 2, ..Guest::USUAL }) else { return };
    assert_eq!(said.words("loaded")[0], "enabled", "{}", said.console);
    assert_eq!(said.numbers("nodes"), [2]);
    let cpus = |round: &str, load: &str| -> Vec<u64> {
        let threads = said.load(&format!("{round}.{load}")).2;
        said.switches(&format!("{round}.switches"), &threads).into_keys().collect()
    };

    // A set within the first node; one that leaves the first node no core; one that leaves neither any.
    for (round, outside) in [("part", 3..8), ("whole", 4..8), ("all", 0..8)] {
        assert!(said.numbers(&format!("{round}.found"))[0] >= 8, "{}", said.console);
        let spin = cpus(round, "spin");
        assert!(outside.clone().all(|cpu| spin.contains(&cpu)), "{round}: idle beside {spin:?}\n{}", said.console);
        assert!(cpus(round, "files").iter().all(|&cpu| cpu < said.numbers(&format!("{round}.bound"))[0]));
        assert!(cpus(round, "near").iter().all(|&cpu| cpu < 4), "their mask is the first node");
        assert!(cpus(round, "far").iter().all(|&cpu| cpu >= 4), "their mask is the second node");
        let loads = ["files", "spin", "near", "far", "one"].map(|load| format!("{round}.{load}"));
        said.nobody_starves(&loads.each_ref().map(String::as_str));
    }

    // A node goes with its last processor, and comes back.
    assert_eq!(said.words("gone")[0], "enabled", "{}", said.console);
    assert_eq!(said.numbers("gone.nodes"), [1]);
    said.nobody_starves(&["gone.spin"]);
    assert_eq!(said.words("back")[0], "enabled", "{}", said.console);
    assert_eq!(said.numbers("back.nodes"), [2]);
    assert_eq!(said.words("end")[0], "enabled", "{}", said.console);
}

#[test]
fn ten_thousand_forks_leave_nothing_behind() {
    let Some(said) = boot("leaks.sh", Guest::USUAL) else { return };
    said.only_shells("before");
    said.only_shells("after");
    assert!(said.metric("slices_told_total") > 0, "no task was lock-intensive");
    let (before, after) = (said.numbers("memory.before"), said.numbers("memory.after"));
    assert_eq!((before.len(), after.len()), (4, 4), "{}", said.console);
    for (before, after) in before.into_iter().zip(after) {
        // What is kept of a task takes some 200 bytes; a leak of 64 with each of 6,000 tasks would be 384 kB.
        assert!(after < before + 384, "{before} kB, then {after} kB:\n{}", said.console);
    }
    assert_eq!(said.words("end")[0], "enabled", "{}", said.console);
    assert_eq!(said.words("status"), ["0"], "Ctrl-C is no failure");
    assert_eq!(said.words("ended"), ["disabled"]);
}

#[test]
fn children_of_shells_inherit_from_those_before_them() {
    let Some(said) = boot("shells.sh", Guest::USUAL) else { return };
    let heirs = said.numbers("heirs")[0];
    assert!(heirs >= 20, "{heirs} of 120 children were lock-intensive from their start\n{}", said.console);
    said.only_shells("childless");
    assert_eq!(said.words("end")[0], "enabled", "{}", said.console);
}

/// At most 5 % more instructions than under the default scheduler, where nobody contends.
#[test]
#[ignore = "a measurement: make bench-sched"]
fn overhead() {
    let Some(said) = boot("overhead.sh", Guest { processors: 1, clock: Clock::Instructions, ..Guest::USUAL }) else {
        return;
    };
    println!("| work | default, ns | unconvoy sched, ns | more |\n| --- | --- | --- | --- |");
    for work in ["exec", "pipe"] {
        let times = |scheduler: &str| -> Vec<u64> {
            let mut times: Vec<u64> =
                (1..=5).map(|round| said.numbers(&format!("{scheduler}.{round}.{work}"))[0]).collect();
            times.sort_unstable();
            times
        };
        let (default, own) = (times("default"), times("unconvoy"));
        let more = own[2] as f64 / default[2] as f64 - 1.0;
        let shown = |times: &[u64]| format!("{} ({} to {})", times[2], times[0], times[4]);
        println!("| {work} | {} | {} | {:+.1} % |", shown(&default), shown(&own), 100.0 * more);
        assert!(said.words("unconvoy.1")[0] == "enabled" && said.words("default.1") == ["disabled"]);
    }
}
