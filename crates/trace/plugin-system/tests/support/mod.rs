//! Boots a kernel under QEMU with the plug-in, and reads the stream.

mod types;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use unconvoy_trace_stream::{Counts, Held, Lock, Reader, Record, Section};

/// What a boot needs, with the kernel's own symbols and types.
pub struct Machine {
    kernel: PathBuf,
    qemu: PathBuf,
    folder: tempfile::TempDir,
    /// Serializes the guests, which have several processors each.
    turn: Mutex<()>,
}

/// The machine; `None` after printing the reason.
pub fn machine() -> Option<&'static Machine> {
    static MACHINE: OnceLock<Result<Machine, String>> = OnceLock::new();
    match MACHINE.get_or_init(Machine::prepare) {
        Ok(machine) => Some(machine),
        Err(reason) => {
            println!("missing: {reason}");
            None
        }
    }
}

/// QEMU alone; `None` after printing the reason.
pub fn qemu() -> Option<PathBuf> {
    match find_qemu() {
        Ok(qemu) => Some(qemu),
        Err(reason) => {
            println!("missing: {reason}");
            None
        }
    }
}

/// The folder that the kernel set-up (`make kernel`) fills.
fn kernel_folder() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/kernel");
    std::env::var_os("UNCONVOY_KERNEL").map_or(repository, PathBuf::from)
}

fn find_qemu() -> Result<PathBuf, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("the plug-in is for x86-64 hosts".to_string());
    }
    let candidates =
        [kernel_folder().join("qemu/usr/bin/qemu-system-x86_64"), "qemu-system-x86_64".into()];
    let has_plugins = |qemu: &&PathBuf| {
        let help = Command::new(qemu).arg("--help").output();
        let version = Command::new(qemu).arg("--version").output();
        let (Ok(help), Ok(version)) = (help, version) else { return false };
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        let major = version
            .split("version ")
            .nth(1)
            .and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        major >= Some(10) && String::from_utf8_lossy(&help.stdout).contains("-plugin")
    };
    candidates
        .iter()
        .find(has_plugins)
        .cloned()
        .ok_or("qemu-system-x86_64 10 with -plugin (make kernel)".to_string())
}

/// The guest's init program. The kernel's command line selects what it does.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
work() {
	mkdir /tmp/$1
	cd /tmp/$1
	for folder in 1 2 3 4; do
		mkdir $folder
		for file in 1 2 3 4 5 6 7 8; do echo $folder $file > $folder/$file; done
	done
	find /proc/sys /sys/kernel -type f > list
	cp -r 1 2 copy
	grep -r nothing .
	rm -rf 1 2 copy
}
case \"$(cat /proc/cmdline)\" in
*do=symbols*)
	cat /proc/kallsyms > /dev/vport0p1
	cat /sys/kernel/btf/vmlinux > /dev/vport0p2
	;;
*do=work*)
	hostname unconvoy-begin
	for processor in $(seq $(nproc)); do work $processor & done
	wait
	hostname unconvoy-end
	echo the workload is done
	;;
esac
poweroff -f
";

impl Machine {
    fn prepare() -> Result<Machine, String> {
        let qemu = find_qemu()?;
        let kernel = kernel_folder().join("vmlinuz");
        if !kernel.exists() {
            return Err(format!(
                "kernel {} (make kernel, or UNCONVOY_KERNEL=DIRECTORY)",
                kernel.display()
            ));
        }
        let busybox = ["/bin/busybox", "/usr/bin/busybox"]
            .into_iter()
            .find_map(|path| std::fs::read(path).ok());
        let busybox = busybox.ok_or("busybox (install busybox-static)")?;
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut archive = Archive::default();
        for name in ["bin", "dev", "proc", "sys", "tmp"] {
            archive.add(name, 0o040_755, &[]);
        }
        archive.add("bin/busybox", 0o100_755, &busybox);
        archive.add("init", 0o100_755, INIT.as_bytes());
        std::fs::write(folder.path().join("initramfs"), archive.finish())
            .map_err(|error| error.to_string())?;
        let machine = Machine { kernel, qemu, folder, turn: Mutex::new(()) };
        let port = |number: u32, file: &str| {
            let path = machine.path(file);
            let character = format!("file,id=c{number},path={}", path.display());
            [
                "-chardev".to_string(),
                character,
                "-device".into(),
                format!("virtserialport,chardev=c{number},nr={number}"),
            ]
        };
        let mut arguments = vec!["-device".to_string(), "virtio-serial".into()];
        arguments.extend(port(1, "symbols"));
        arguments.extend(port(2, "types"));
        let output = machine.boot(1, "symbols", "max,-smap,-la57", &arguments);
        let types = std::fs::read(machine.path("types")).unwrap_or_default();
        let offsets = types::Types::read(&types).and_then(|types| types.offsets());
        // Everything needed exists, so a failure is an error and no reason to skip.
        let offsets = offsets.unwrap_or_else(|| {
            panic!("the kernel did not write its symbols and types: {output:?}")
        });
        std::fs::write(machine.path("offsets"), offsets).map_err(|error| error.to_string())?;
        Ok(machine)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn boot(
        &self,
        processors: u32,
        task: &str,
        model: &str,
        arguments: &[impl AsRef<OsStr>],
    ) -> Output {
        let _turn = self.turn();
        let line = format!(
            "console=ttyS0 quiet nokaslr mitigations=off panic=-1 lpj=10000000 tsc=reliable \
                no_timer_check do={task}"
        );
        // A guest that hangs shows a defect of the plug-in: kill it and let the test fail.
        let mut command = Command::new("timeout");
        command.arg("100").arg(&self.qemu).args([
            "-machine",
            "q35",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            model,
        ]);
        command.args([
            "-m",
            "512M",
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
        ]);
        command.args(["-serial", "stdio", "-smp", &processors.to_string()]);
        // A QEMU that was unpacked elsewhere instead of installed does not find its firmware.
        if let Some(usr) =
            self.qemu.ancestors().nth(2).filter(|usr| usr.join("share/qemu").exists())
        {
            command.arg("-L").arg(usr.join("share/qemu")).arg("-L").arg(usr.join("share/seabios"));
        }
        command
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(self.path("initramfs"))
            .args(["-append", &line]);
        command
            .args(arguments)
            .stdin(std::process::Stdio::null())
            .output()
            .expect("timeout and qemu")
    }

    /// The file of the kernel's symbols.
    pub fn symbols(&self) -> PathBuf {
        self.path("symbols")
    }

    /// The address of a symbol.
    pub fn symbol(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(self.symbols()).expect("symbols");
        let line = text.lines().find(|line| line.split(' ').nth(2) == Some(name));
        line.and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok())
            .unwrap_or_else(|| panic!("no {name}"))
    }

    /// Runs the guest with further options of the plug-in.
    pub fn run(&self, processors: u32, task: &str, model: &str, options: &str) -> Run {
        let out = tempfile::NamedTempFile::new().expect("a file");
        let plugin = format!(
            "{},out={},symbols={},offsets={},{options}",
            plugin().display(),
            out.path().display(),
            self.symbols().display(),
            self.path("offsets").display()
        );
        let output = self.boot(processors, task, model, &["-plugin", &plugin]);
        Run::read(out.path(), output)
    }
}

/// The plug-in that Cargo built for this test, in a folder above the test's executable.
pub fn plugin() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let found =
        test.ancestors().skip(1).take(2).map(|folder| folder.join("libunconvoy_plugin_system.so"));
    found.into_iter().find(|path| path.exists()).expect("Cargo builds the library before its tests")
}

/// A cpio archive ("newc") that the kernel unpacks.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    files: u32,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.files += 1;
        let mut head = "070701".to_string();
        let size = content.len() as u32;
        for field in [self.files, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name.len() as u32 + 1, 0] {
            let _ = write!(head, "{field:08x}");
        }
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

/// A lock of the stream with its totals.
#[derive(Clone, Copy, Debug)]
pub struct LockTotals {
    pub lock: Lock<'static>,
    pub counts: Counts,
    pub held: Held,
}

/// The result of a run.
pub struct Run {
    pub output: Output,
    pub context: String,
    pub end: String,
    /// The locks, by number.
    pub locks: BTreeMap<u32, LockTotals>,
    /// The sections, each with the addresses of its words.
    pub sections: Vec<(Section, Vec<u64>)>,
    /// The objects, by address: size in bytes and name.
    pub objects: BTreeMap<u64, (u64, String)>,
}

impl Run {
    fn read(path: &Path, output: Output) -> Run {
        let mut run = Run {
            output,
            context: String::new(),
            end: String::new(),
            locks: BTreeMap::new(),
            sections: Vec::new(),
            objects: BTreeMap::new(),
        };
        let file = std::fs::File::open(path).expect("a stream");
        let mut reader = Reader::new(std::io::BufReader::new(file))
            .unwrap_or_else(|error| panic!("{error}: {}", run.log()));
        let mut places = 0;
        while let Some(record) = reader.next_record().expect("a whole stream") {
            match record {
                Record::Context(json) => run.context = json.to_string(),
                Record::End(json) => run.end = json.to_string(),
                Record::Lock(lock) => {
                    let number = lock.number;
                    let counts = Counts { lock: number, acquisitions: 0, sampled: 0, contended: 0 };
                    let held = Held { lock: number, held: 0, waited: 0 };
                    let totals = LockTotals { lock: Lock { name: &[], ..lock }, counts, held };
                    assert!(run.locks.insert(number, totals).is_none(), "each lock once");
                }
                Record::Counts(counts) => {
                    run.locks.get_mut(&counts.lock).expect("a lock").counts = counts
                }
                Record::Held(held) => run.locks.get_mut(&held.lock).expect("a lock").held = held,
                Record::Place(place) => places = places.max(place.number),
                Record::Section(section, entries) => {
                    assert!(run.locks.contains_key(&section.lock), "a lock precedes its sections");
                    assert!(
                        run.sections.last().is_none_or(|(last, _)| last.order < section.order),
                        "sections come in order"
                    );
                    let known = entries
                        .iter()
                        .all(|entry| entry.read_place.max(entry.written_place) <= places);
                    assert!(known, "places precede the sections that refer to them");
                    run.sections
                        .push((section, entries.iter().map(|entry| entry.address).collect()));
                }
                Record::Object(object) => {
                    let name = String::from_utf8_lossy(object.name).into_owned();
                    run.objects.insert(object.region.address, (object.region.size, name));
                }
                Record::Module(_) | Record::Allocation(_) => panic!("a program's record"),
            }
        }
        run
    }

    /// The output of the guest and of QEMU.
    pub fn log(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        text(&self.output.stdout) + &text(&self.output.stderr)
    }

    /// A number in the end record.
    pub fn number(&self, key: &str) -> u64 {
        let after = self
            .end
            .split(&format!("\"{key}\":"))
            .nth(1)
            .unwrap_or_else(|| panic!("no {key} in {}", self.end));
        after
            .split(|character: char| !character.is_ascii_digit())
            .next()
            .and_then(|digits| digits.parse().ok())
            .expect("a number")
    }

    /// The start and name of the object that contains `address`.
    pub fn object(&self, address: u64) -> Option<(u64, &str)> {
        let (start, (size, name)) = self.objects.range(..=address).next_back()?;
        (address - start < *size).then_some((*start, name))
    }

    /// The locks in objects of a slab cache.
    pub fn locks_in(&self, cache: &str) -> Vec<LockTotals> {
        let is_in = |entry: &&LockTotals| {
            self.object(entry.lock.region.address).is_some_and(|(_, name)| name == cache)
        };
        self.locks.values().filter(is_in).copied().collect()
    }
}
