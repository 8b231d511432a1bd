//! A guest: a stock Debian kernel in QEMU with the scheduler in its root file system. The guest
//! runs `init` and the script of a test, and reports observations on its console.
//!
//! Requires the kernel and the QEMU that `make kernel` fetches (`target/kernel`, or the directory
//! in `UNCONVOY_KERNEL`; a QEMU in `PATH` also works), a static busybox and a C compiler. Tests
//! without them print the reason and are skipped.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Memory of a guest, in MiB.
const MEMORY: u32 = 2048;

/// Held while a guest runs: two at once would exceed the host's processors.
static TURN: Mutex<()> = Mutex::new(());

/// The output of a guest: observations by name, and files.
pub struct Output {
    pub console: String,
    words: BTreeMap<String, Vec<String>>,
    files: BTreeMap<String, String>,
    /// Instructions of all processors in each call of `load exec` and `load pipe`, in order. Only
    /// with [`Clock::Instructions`].
    pub instructions: Vec<u64>,
}

impl Output {
    pub fn words(&self, name: &str) -> &[String] {
        self.words.get(name).unwrap_or_else(|| panic!("no {name} in:\n{}", self.console))
    }

    pub fn file(&self, name: &str) -> &str {
        self.files.get(name).unwrap_or_else(|| panic!("no {name} in:\n{}", self.console))
    }

    pub fn numbers(&self, name: &str) -> Vec<u64> {
        self.words(name)
            .iter()
            .map(|word| word.parse().unwrap_or_else(|_| panic!("{name}: {word}")))
            .collect()
    }
}

/// With `Host`, the guest runs at the host's speed, on parallel processors. With `Instructions`, an
/// instruction takes one nanosecond, and the guest's processors share one of the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    Host,
    Instructions,
}

/// Configuration of a guest.
#[derive(Debug, Clone)]
pub struct Machine<'a> {
    /// Name of the script.
    pub job: &'a str,
    pub processors: u32,
    /// Number of memory nodes; each has the same number of processors.
    pub nodes: u32,
    pub clock: Clock,
    /// Variables in the script's environment.
    pub settings: &'a [(&'a str, u32)],
    /// Further programs, statically linked.
    pub programs: &'a [PathBuf],
    /// Time limit: several times the duration on two slow processors.
    pub timeout: Duration,
}

impl<'a> Machine<'a> {
    /// A guest with the host's clock and one memory node.
    pub fn new(job: &'a str, processors: u32) -> Self {
        Machine {
            job,
            processors,
            nodes: 1,
            clock: Clock::Host,
            settings: &[],
            programs: &[],
            timeout: Duration::from_secs(300),
        }
    }

    /// Boots the guest and waits for its end; `None` if something is missing.
    pub fn boot(&self) -> Option<Output> {
        let parts = match parts() {
            Ok(parts) => parts,
            Err(reason) => {
                println!("missing: {reason}");
                return None;
            }
        };
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let image = self.root(directory.path());
        let run = || self.run(&parts, &image, directory.path());
        let output = run();
        if !emulator_failed(&output.console) {
            return Some(output);
        }
        println!("the emulator failed; booting again:\n{}", output.console);
        Some(run())
    }

    fn run(&self, parts: &Parts, image: &Path, directory: &Path) -> Output {
        let (console, counts) = (directory.join("console"), directory.join("counts"));
        let mut qemu = Command::new(&parts.qemu);
        for directory in &parts.firmware {
            qemu.arg("-L").arg(directory);
        }
        match self.clock {
            Clock::Host => qemu.args(["-accel", "tcg,thread=multi,tb-size=512"]),
            Clock::Instructions => {
                let counter = directory.join("instructions.so");
                compile("instructions.c", &counter, &["-shared", "-fPIC"]);
                qemu.args([
                    "-accel",
                    "tcg,thread=single,tb-size=512",
                    "-icount",
                    "shift=0,sleep=off",
                ])
                .args(["-plugin", &format!("{},to={}", counter.display(), counts.display())])
            }
        };
        let settings: String =
            self.settings.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        let quiet = "console=ttyS0 quiet nokaslr mitigations=off panic=-1 lpj=10000000 \
             tsc=reliable edd=off no_timer_check oops=panic";
        // `-hypervisor`: a kernel that detects a hypervisor uses paravirtual spin locks, which it
        // does not trace.
        qemu.args([
            "-machine",
            "q35",
            "-m",
            &format!("{MEMORY}M"),
            "-no-reboot",
            "-smp",
            &self.processors.to_string(),
        ])
        .args(self.memory())
        .args(["-cpu", "max,-hypervisor,-la57,-smap,-smep,-umip,-pku,-pks"])
        .args([
            "-nodefaults",
            "-display",
            "none",
            "-serial",
            &format!("file:{}", console.display()),
        ])
        .arg("-kernel")
        .arg(&parts.kernel)
        .arg("-initrd")
        .arg(image)
        .args(["-append", &format!("{quiet}{settings}")])
        .stdin(Stdio::null());
        // SAFETY: between fork and exec, this makes one system call and neither allocates nor
        // locks.
        unsafe { qemu.pre_exec(end_with_us) };
        self.wait_for(qemu.spawn().expect("QEMU starts"), &console);
        let instructions = std::fs::read_to_string(counts).unwrap_or_default();
        let instructions =
            instructions.lines().map(|count| count.parse().expect("a count")).collect();
        Output { instructions, ..parse(read(&console)) }
    }

    /// QEMU's arguments for memory nodes: each gets a part of the memory and of the processors.
    fn memory(&self) -> Vec<String> {
        let (memory, each) = (MEMORY / self.nodes, self.processors / self.nodes);
        let node = |node: u32| {
            let (first, last) = (node * each, (node + 1) * each - 1);
            let memory =
                ["-object".into(), format!("memory-backend-ram,id=memory{node},size={memory}M")];
            memory.into_iter().chain([
                "-numa".into(),
                format!("node,nodeid={node},cpus={first}-{last},memdev=memory{node}"),
            ])
        };
        (0..self.nodes).flat_map(node).collect()
    }

    fn wait_for(&self, mut qemu: Child, console: &Path) {
        let start = Instant::now();
        while qemu.try_wait().expect("QEMU is a child").is_none() {
            if start.elapsed() > self.timeout {
                let _ = qemu.kill();
                let _ = qemu.wait();
                panic!("the guest hangs:\n{}", read(console));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Packs the guest's root file system into an image for the kernel.
    fn root(&self, directory: &Path) -> PathBuf {
        let root = directory.join("root");
        for name in ["proc", "sys", "dev", "tmp", "bin"] {
            std::fs::create_dir_all(root.join(name)).expect("a directory");
        }
        let scheduler = Path::new(env!("CARGO_BIN_EXE_unconvoy-sched-ext"));
        let copy = |from: &Path, to: &str| {
            let to = root.join(to);
            std::fs::create_dir_all(to.parent().expect("a file's directory")).expect("a directory");
            std::fs::copy(from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
            std::fs::set_permissions(to, PermissionsExt::from_mode(0o755)).expect("its mode");
        };
        copy(&program("busybox"), "bin/busybox");
        copy(scheduler, "bin/unconvoy-sched-ext");
        copy(&source("init"), "init");
        copy(&source(self.job), "job");
        for library in libraries(scheduler) {
            copy(&library, &library.display().to_string()[1..]);
        }
        for program in self.programs {
            copy(
                program,
                &format!(
                    "bin/{}",
                    program.file_name().expect("a program's name").to_string_lossy()
                ),
            );
        }
        compile("load.c", &root.join("bin/load"), &["-static", "-pthread"]);
        let image = directory.join("root.cpio");
        let pack = "find . | busybox cpio -o -H newc >\"$1\" 2>/dev/null";
        let packed =
            Command::new("sh").args(["-c", pack, "sh"]).arg(&image).current_dir(&root).status();
        assert!(packed.expect("sh runs").success(), "the guest's root cannot be packed");
        image
    }
}

/// The programs and files that a guest needs.
struct Parts {
    kernel: PathBuf,
    qemu: PathBuf,
    /// Firmware directories of a QEMU that is not installed.
    firmware: Vec<PathBuf>,
}

/// Finds the parts, or names the missing one.
fn parts() -> Result<Parts, String> {
    let directory = std::env::var_os("UNCONVOY_KERNEL").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/kernel"),
        PathBuf::from,
    );
    let kernel = directory.join("vmlinuz");
    if !kernel.is_file() {
        return Err(format!(
            "{} is missing: make kernel, or UNCONVOY_KERNEL=DIRECTORY",
            kernel.display()
        ));
    }
    let runs = |program: &Path| {
        Command::new(program)
            .arg("--help")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
    };
    for (program, package) in [("gcc", "gcc"), ("busybox", "busybox-static")] {
        if !runs(Path::new(program)) {
            return Err(format!("{program} is missing: apt-get install {package}"));
        }
    }
    let usr = directory.join("qemu/usr");
    let (own, installed) =
        (usr.join("bin/qemu-system-x86_64"), PathBuf::from("qemu-system-x86_64"));
    if own.is_file() {
        Ok(Parts {
            kernel,
            qemu: own,
            firmware: vec![usr.join("share/qemu"), usr.join("share/seabios")],
        })
    } else if runs(&installed) {
        Ok(Parts { kernel, qemu: installed, firmware: Vec::new() })
    } else {
        Err("qemu-system-x86_64 is missing: make kernel".into())
    }
}

/// Makes the kernel kill QEMU when this process dies.
fn end_with_us() -> std::io::Result<()> {
    // SAFETY: this prctl option takes a signal number and no pointers.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Whether QEMU failed and not the guest, in one of two ways that QEMU 10.0 has on a busy host:
///
/// - It executes an instruction while another processor patches it, and the guest's kernel dies. A
///   kernel patches itself at boot, and when a scheduler begins or ends (about one time in sixty).
/// - It does not fire an idle processor's timer. After 21 s the guest's kernel names the timer, and
///   unloads the scheduler. A scheduler cannot cause this: the task that waits is not runnable.
fn emulator_failed(console: &str) -> bool {
    console.contains("Oops: int3")
        || console.contains("rcu_preempt kthread timer wakeup didn't happen")
        || !console.contains("@init") && console.contains("Kernel panic")
}

fn read(console: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(console).unwrap_or_default()).replace('\r', "")
}

fn parse(console: String) -> Output {
    let (mut words, mut files) = (BTreeMap::new(), BTreeMap::new());
    let mut file: Option<(String, String)> = None;
    for line in console.lines() {
        match (&mut file, line.strip_prefix('@')) {
            (Some(_), Some("}")) => files.extend(file.take()),
            (Some((_, text)), _) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, Some(observation)) => match observation.strip_suffix('{') {
                Some(name) => file = Some((name.to_owned(), String::new())),
                None => {
                    let mut observation = observation.split_whitespace().map(str::to_owned);
                    words.insert(observation.next().unwrap_or_default(), observation.collect());
                }
            },
            (None, None) => {}
        }
    }
    Output { console, words, files, instructions: Vec::new() }
}

/// Path of a file beside this one.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest").join(name)
}

fn compile(name: &str, to: &Path, how: &[&str]) {
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-Wall", "-Wextra", "-Werror"]).args(how).arg("-o").args([to, &source(name)]);
    assert!(gcc.status().expect("gcc runs").success(), "{name} cannot be compiled");
}

fn program(name: &str) -> PathBuf {
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths(&directories).map(|directory| directory.join(name));
    paths.find(|path| path.is_file()).unwrap_or_else(|| panic!("{name} is not in PATH"))
}

/// The shared libraries of a program, and its dynamic loader.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd runs");
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}
