//! The tests' fixture: a directory, a stand-in for the interposer, and programs.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process};
use std::time::Duration;

use assert_cmd::Command;
use tempfile::TempDir;

/// Time limit of a test, far above what any test needs on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(300);

/// A program whose throughput depends only on the lock and the thread count.
pub const THROUGHPUT: &str = "\
#!/bin/sh
case \"$UNCONVOY_LOCK\" in
  '') ops=$((1000000 / $1)) ;;
  loiter) ops=$((990000 - $1)) ;;
  *) ops=$((1000000 / $1 / $1)) ;;
esac
echo warming up: ops_per_sec: 1
echo \"ops_per_sec: $ops\"
echo \"operations: $ops\"
echo \"jain: 0.95\" >&2
";

/// A script that checks a page's width and colours, and reports faults in the page's title.
const FITS: &str = "const page = document.documentElement;
check(page.scrollWidth <= innerWidth, page.scrollWidth + ' wide in ' + innerWidth);
const dark = matchMedia('(prefers-color-scheme: dark)').matches;
const light = c => c.match(/[0-9.]+/g).slice(0, 3).reduce((sum, part) => sum + +part, 0) > 380;
check(light(getComputedStyle(document.body).color) === dark, 'text colour');
document.title = 'wrong: ' + wrong.join('; ') + '|' + innerWidth + '|' + dark;
";

/// The tested command: `unconvoy` or `unconvoy-study`.
const COMMAND: Option<&str> = match option_env!("CARGO_BIN_EXE_unconvoy") {
    Some(command) => Some(command),
    None => option_env!("CARGO_BIN_EXE_unconvoy-study"),
};

/// A directory with a shared object in place of the interposer, which another crate builds.
pub struct Stage {
    directory: TempDir,
}

impl Stage {
    pub fn new() -> Self {
        let stage = Self { directory: tempfile::tempdir().unwrap() };
        let source = stage.write("standin.c", "int unconvoy_stand_in;\n");
        let built = stage.compile("libunconvoy.so", &source, &["-shared", "-fPIC"]);
        assert!(built.is_ok(), "the tests need a C compiler: {built:?}");
        stage
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn library(&self) -> PathBuf {
        self.path("libunconvoy.so").canonicalize().unwrap()
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.write(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Compiles `source` to `name`, or returns the compiler's messages.
    pub fn compile(&self, name: &str, source: &Path, flags: &[&str]) -> Result<PathBuf, String> {
        let path = self.path(name);
        let output = Process::new("cc").arg("-o").arg(&path).arg(source).args(flags).output();
        let output = output.map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(path)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// Opens a page in Chromium in several widths and in both colour schemes, where it must fit and
    /// have text that contrasts. `script` tests more, by `check(HOLDS, WHAT)`.
    pub fn check_in_browser(&self, page: &str, script: &str) {
        let script = format!(
            "<script>const wrong = [];\n\
             const check = (holds, what) => {{ if (!holds) wrong.push(what); }};\n{script}\n{FITS}\
             </script></body>"
        );
        self.write(page, &self.read(page).replace("</body>", &script));
        for (width, scheme, expected) in [
            (400, 1, "400|false"),
            (1600, 1, "1600|false"),
            (400, 0, "400|true"),
            (1000, 0, "1000|true"),
        ] {
            // A window is at least 500 pixels wide, but a frame in it can be narrower.
            let frame = format!(
                "<!doctype html><style>:root {{ color-scheme: light dark; }}</style>\
                 <iframe id=page width={width} height=900 style='border: 0' src={page}></iframe>\
                 <script>page.onload = () => document.title = page.contentDocument.title;</script>"
            );
            let outer = self.write("outer.html", &frame);
            let mut command = Process::new("/usr/bin/chromium");
            command
                .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
                .args(["--dump-dom", "--window-size=1700,1000", "--allow-file-access-from-files"])
                .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
                .arg(format!("--user-data-dir={}", self.path("browser").display()))
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

    /// Copies the command, without its companions. A process of its own copies it: while a file is
    /// open for writing, and be it in a child that another test starts, it cannot be executed.
    pub fn copy_of_command(&self) -> PathBuf {
        let copy = self.path("unconvoy");
        let mut cp = Process::new("cp");
        assert!(cp.arg(self.process().get_program()).arg(&copy).status().unwrap().success());
        copy
    }

    /// Returns the command in the directory, with the stand-in and without the user's settings.
    pub fn unconvoy(&self) -> Command {
        let mut command = Command::from_std(self.process());
        command.timeout(LIMIT);
        command
    }

    /// As `unconvoy`, for tests that interact with the running command.
    pub fn process(&self) -> Process {
        let mut process = Process::new(COMMAND.expect("cargo builds the command that it tests"));
        process.current_dir(self.directory.path()).env("UNCONVOY_LIBRARY", self.library());
        for name in
            ["LD_PRELOAD", "UNCONVOY_LOCK", "UNCONVOY_LOAD", "UNCONVOY_STATS", "UNCONVOY_CHILDREN"]
        {
            process.env_remove(name);
        }
        process
    }
}

/// The real interposer, from `UNCONVOY_LIBRARY` or beside the command; `None` after a message.
pub fn library() -> Option<PathBuf> {
    let named = std::env::var_os("UNCONVOY_LIBRARY").map(PathBuf::from);
    let beside = || Path::new(COMMAND.expect("a command")).with_file_name("libunconvoy.so");
    let found = named.unwrap_or_else(beside);
    let is_built = found.is_file();
    if !is_built {
        println!("missing: {} is not built (cargo build --workspace)", found.display());
    }
    is_built.then_some(found)
}

/// Whether processes that are not children of the reader may be read; false after a message
/// (`Documentation/admin-guide/LSM/Yama.rst` in the kernel's source).
pub fn may_read_processes() -> bool {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let is_free = matches!(scope.trim(), "" | "0") || nix::unistd::geteuid().is_root();
    if !is_free {
        println!("skipped: kernel.yama.ptrace_scope is {}", scope.trim());
    }
    is_free
}

/// A process that is killed when the test ends.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a killed process, which ends only once it is scheduled, and returns whether it ended
/// within a time limit. A zombie that its new parent has not reaped counts as ended.
pub fn has_ended(id: &str) -> bool {
    let stat = format!("/proc/{}/stat", id.trim());
    let is_running = || {
        let text = fs::read_to_string(&stat).unwrap_or_default();
        text.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    };
    (0..10_000).any(|_| {
        let ended = !is_running();
        if !ended {
            std::thread::sleep(Duration::from_millis(5));
        }
        ended
    })
}

/// Returns whether a part besides the compiler is missing, and prints which.
pub fn lacks_emulator() -> bool {
    if !Process::new("qemu-x86_64")
        .arg("-version")
        .stdout(std::process::Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        println!("missing: qemu-x86_64 not found (scripts/packages-syncchar.txt)");
        return true;
    }
    let command = COMMAND.expect("cargo builds the command for its tests");
    let beside = Path::new(command).parent().unwrap();
    for part in ["libunconvoy.so", "libunconvoy_plugin_user.so"] {
        if !beside.join(part).is_file() {
            println!("missing: {part} is not built (cargo build --workspace)");
            return true;
        }
    }
    false
}
