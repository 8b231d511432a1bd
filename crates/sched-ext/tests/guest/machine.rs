//! A guest: a stock Debian kernel in QEMU with the scheduler in its root. It does what its script says (`init`, and a script of a test's own) and says what it sees.
//!
//! Takes the kernel and the QEMU that `make kernel` fetches (`target/kernel`, or the directory that `UNCONVOY_KERNEL` names; a QEMU in `PATH` will do, too),
//! a static busybox and a C compiler; without one of them the tests say so and are skipped.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Of a guest, in MiB.
const MEMORY: u32 = 2048;

/// Two guests at once would be of so many processors more, for which the host has none.
static TURN: Mutex<()> = Mutex::new(());

/// What the guest said: observations by name, and files.
pub struct Said {
    pub console: String,
    words: BTreeMap<String, Vec<String>>,
    files: BTreeMap<String, String>,
    /// Instructions that all processors executed in each call of `load exec` and `load pipe`, in turn; of [`Clock::Instructions`] alone.
    pub instructions: Vec<u64>,
}

impl Said {
    pub fn words(&self, name: &str) -> &[String] {
        self.words.get(name).unwrap_or_else(|| panic!("no {name} in:\n{}", self.console))
    }

    pub fn file(&self, name: &str) -> &str {
        self.files.get(name).unwrap_or_else(|| panic!("no {name} in:\n{}", self.console))
    }

    pub fn numbers(&self, name: &str) -> Vec<u64> {
        self.words(name).iter().map(|word| word.parse().unwrap_or_else(|_| panic!("{name}: {word}"))).collect()
    }
}

/// A machine that is as fast as the host, on which processors run at the same time; and one that executes an instruction a
/// nanosecond, on one of the host's, where processors take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    Host,
    Instructions,
}

/// A guest that is to be.
#[derive(Debug, Clone)]
pub struct Machine<'a> {
    /// The script.
    pub job: &'a str,
    pub processors: u32,
    /// Memory nodes, of as many processors each.
    pub nodes: u32,
    pub clock: Clock,
    /// Names and values that the script finds in its environment.
    pub settings: &'a [(&'a str, u32)],
    /// Programs beside the scheduler, busybox and `load`; without libraries.
    pub programs: &'a [PathBuf],
    /// Several times what it takes on two slow processors.
    pub patience: Duration,
}

impl<'a> Machine<'a> {
    /// As fast as the host, with nothing but what all have.
    pub fn new(job: &'a str, processors: u32) -> Self {
        Machine {
            job,
            processors,
            nodes: 1,
            clock: Clock::Host,
            settings: &[],
            programs: &[],
            patience: Duration::from_secs(300),
        }
    }

    /// Boots the kernel with the scheduler and the job in its root; `None` if it cannot.
    pub fn boot(&self) -> Option<Said> {
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
        let mut said = self.run(&parts, &image, directory.path());
        // One boot in some thirty panics on a busy host before anything of ours runs: QEMU executes an instruction that another processor is just patching.
        if !said.words.contains_key("init") && said.console.contains("Kernel panic") {
            println!("the guest panicked while it booted; once more");
            said = self.run(&parts, &image, directory.path());
        }
        Some(said)
    }

    fn run(&self, parts: &Parts, image: &Path, directory: &Path) -> Said {
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
                qemu.args(["-accel", "tcg,thread=single,tb-size=512", "-icount", "shift=0,sleep=off"])
                    .args(["-plugin", &format!("{},to={}", counter.display(), counts.display())])
            }
        };
        let settings: String = self.settings.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        let quiet =
            "console=ttyS0 quiet nokaslr mitigations=off panic=-1 lpj=10000000 tsc=reliable edd=off no_timer_check";
        // `-hypervisor`: in a guest that knows that it is one the kernel takes spin locks in another way, which it does not trace.
        qemu.args(["-machine", "q35", "-m", &format!("{MEMORY}M"), "-no-reboot", "-smp", &self.processors.to_string()])
            .args(self.memory())
            .args(["-cpu", "max,-hypervisor,-la57,-smap,-smep,-umip,-pku,-pks"])
            .args(["-nodefaults", "-display", "none", "-serial", &format!("file:{}", console.display())])
            .arg("-kernel")
            .arg(&parts.kernel)
            .arg("-initrd")
            .arg(image)
            .args(["-append", &format!("{quiet}{settings}")])
            .stdin(Stdio::null());
        // SAFETY: between fork and exec this makes one system call, and neither allocates nor locks.
        unsafe { qemu.pre_exec(end_with_us) };
        self.wait_for(qemu.spawn().expect("QEMU starts"), &console);
        let instructions = std::fs::read_to_string(counts).unwrap_or_default();
        let instructions = instructions.lines().map(|count| count.parse().expect("a count")).collect();
        Said { instructions, ..parse(read(&console)) }
    }

    /// Which node has which part of the memory, and which processors.
    fn memory(&self) -> Vec<String> {
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

    fn wait_for(&self, mut qemu: Child, console: &Path) {
        let start = Instant::now();
        while qemu.try_wait().expect("QEMU is a child").is_none() {
            if start.elapsed() > self.patience {
                let _ = qemu.kill();
                let _ = qemu.wait();
                panic!("the guest hangs:\n{}", read(console));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The guest's root as an image that the kernel unpacks.
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
            copy(program, &format!("bin/{}", program.file_name().expect("a program's name").to_string_lossy()));
        }
        compile("load.c", &root.join("bin/load"), &["-static", "-pthread"]);
        let image = directory.join("root.cpio");
        let pack = "find . | busybox cpio -o -H newc >\"$1\" 2>/dev/null";
        let packed = Command::new("sh").args(["-c", pack, "sh"]).arg(&image).current_dir(&root).status();
        assert!(packed.expect("sh runs").success(), "the guest's root cannot be packed");
        image
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
    Said { console, words, files, instructions: Vec::new() }
}

/// A file beside this one.
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

/// The shared libraries of a program, and their loader.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(program).output().expect("ldd runs");
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}
