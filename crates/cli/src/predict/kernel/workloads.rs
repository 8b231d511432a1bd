//! The paper's parallel workloads (Table 4), reimplemented: the files on the guest's disk and the
//! scripts that run in the guest.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use clap::ValueEnum;

use super::guest::Scripts;
use crate::messages::kernel as messages;
use crate::refusal::Refusal;

/// A workload of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// 32 concurrent searches for a missing text, each in a directory tree of about 5 MB.
    Find,
    /// One Modified Andrew Benchmark per processor, without its compile phase.
    Mab,
    /// One configure script of many short processes per processor.
    Configure,
    /// make -j of 27 C files, two jobs per processor, with this machine's gcc and make.
    Make,
}

/// Number of searches of `find` (Table 4).
const SEARCHES: u64 = 32;
/// Files that `make` compiles, and their total number of lines.
const SOURCES: u64 = 27;
const SOURCE_LINES: u64 = 6031;
/// Files, directories and bytes of the Andrew benchmark's source tree (Howard et al., 1988).
const ANDREW: (u64, u64, u64) = (70, 20, 200 << 10);
/// Number of questions of one `configure`, each with about ten processes.
const QUESTIONS: u64 = 12;
/// Seed of the generated trees, the same everywhere.
const SEED: u64 = 2008;

impl Workload {
    /// Writes the workload's files to `tree` and returns its scripts. `scale` is 1 for the paper's
    /// size.
    ///
    /// # Errors
    ///
    /// No space left; for `make`, no compiler (125).
    pub fn make(self, tree: &Path, processors: u32, scale: f64) -> anyhow::Result<Scripts> {
        let context = || messages::cannot_write_workload(tree);
        match self {
            Self::Find => find(tree, scale).with_context(context),
            Self::Mab => mab(tree, processors, scale).with_context(context),
            Self::Configure => Ok(configure(processors, scale)),
            Self::Make => make(tree, processors, scale),
        }
    }
}

fn scaled(number: u64, scale: f64) -> u64 {
    ((number as f64 * scale).round() as u64).max(1)
}

fn find(tree: &Path, scale: f64) -> std::io::Result<Scripts> {
    let mut random = fastrand::Rng::with_seed(SEED);
    for search in 0..SEARCHES {
        let (files, directories) = (random.u64(333..=751), random.u64(144..=254));
        let bytes = random.u64(4_600_000..=5_000_000);
        let root = tree.join(format!("tree/{search:02}"));
        source_tree(
            &root,
            scaled(files, scale),
            scaled(directories, scale),
            scaled(bytes, scale),
            &mut random,
        )?;
    }
    let command = "\
for tree in /scratch/tree/*; do
	find $tree -type f -exec grep -F 'no file has this' {} + &
done
wait
";
    Ok(Scripts { prepare: String::new(), command: command.into() })
}

fn mab(tree: &Path, processors: u32, scale: f64) -> std::io::Result<Scripts> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let (files, directories, bytes) = ANDREW;
    // More is more rounds, less is a smaller tree.
    let part = |number| scaled(number, scale.min(1.0));
    source_tree(&tree.join("source"), part(files), part(directories), part(bytes), &mut random)?;
    let rounds = scaled(1, scale);
    // Phases: make directories, copy the files, stat them, read them.
    let command = format!(
        "\
benchmark() {{
	for round in $(seq {rounds}); do
		to=/scratch/$1/$round
		mkdir -p $to
		(cd /scratch/source && find . -type d) | while read name; do mkdir -p $to/$name; done
		(cd /scratch/source && find . -type f) | while read name; do \
cp /scratch/source/$name $to/$name; done
		find $to -exec ls -ld {{}} + > /dev/null
		du -s $to > /dev/null
		find $to -type f -exec grep -F 'no file has this' {{}} +
		find $to -type f -exec wc {{}} + > /dev/null
	done
}}
for processor in $(seq {processors}); do
	benchmark $processor &
done
wait
"
    );
    Ok(Scripts { prepare: String::new(), command })
}

fn configure(processors: u32, scale: f64) -> Scripts {
    let questions = scaled(QUESTIONS, scale);
    let command = format!(
        "\
configure() {{
	mkdir -p /scratch/$1
	cd /scratch/$1
	for question in $(seq {questions}); do
		printf 'checking for function_%s... ' $question >> log
		cat > conftest.c <<- END
			#define FUNCTION_$question 1
			int main(void) {{ return function_$question(); }}
		END
		sed -e \"s/FUNCTION_$question/HAVE_$question/\" conftest.c > conftest.i
		if grep -q HAVE_$question conftest.i && test -s conftest.i; then
			result=$(expr $question % 2)
		fi
		name=$(echo function_$question | tr a-z A-Z)
		case $result in
		1) echo \"#define HAVE_$name 1\" >> config.h; echo yes >> log ;;
		*) echo \"/* #undef HAVE_$name */\" >> config.h; echo no >> log ;;
		esac
		cp conftest.i conftest.o
		awk '/define/ {{ print $2 }}' conftest.o > conftest.out
		cmp -s conftest.out conftest.i
		rm -f conftest.c conftest.i conftest.o conftest.out
	done
	sort config.h > config.sorted
	sed 's/@HAVE@/yes/' config.sorted > Makefile
	wc -l Makefile > /dev/null
}}
for processor in $(seq {processors}); do
	configure $processor &
done
wait
"
    );
    Scripts { prepare: String::new(), command }
}

fn make(tree: &Path, processors: u32, scale: f64) -> anyhow::Result<Scripts> {
    for program in toolchain()? {
        let to = tree.join(program.strip_prefix("/").unwrap_or(&program));
        let copy = || -> std::io::Result<()> {
            std::fs::create_dir_all(to.parent().unwrap_or(tree))?;
            std::fs::copy(&program, &to).map(drop)
        };
        copy().with_context(|| messages::cannot_copy_to_guest(&program))?;
    }
    let sources = scaled(SOURCES, scale);
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut write = || -> std::io::Result<()> {
        for directory in ["source", "bin", "dev", "proc", "tmp"] {
            std::fs::create_dir_all(tree.join(directory))?;
        }
        for source in 0..sources {
            let text = c_source(source, SOURCE_LINES / SOURCES, &mut random);
            std::fs::write(tree.join(format!("source/part{source}.c")), text)?;
        }
        let objects: String = (0..sources).map(|source| format!(" part{source}.o")).collect();
        let makefile = format!(
            "whole.o:{objects}\n\tld -r -o $@ $^\n%.o: %.c\n\tgcc -O1 -ffreestanding -c -o $@ $<\n"
        );
        std::fs::write(tree.join("source/Makefile"), makefile)
    };
    write().with_context(|| messages::cannot_write_workload(tree))?;
    // The toolchain has its own paths compiled in.
    let prepare = "\
mkdir -p bin usr/bin dev proc tmp
cp /bin/busybox bin/sh
mount --bind /dev dev
mount -t proc proc proc
mount -t tmpfs tmp tmp
";
    let command =
        format!("PATH=/usr/bin:/bin chroot /scratch make -C /source -j {}\n", 2 * processors);
    Ok(Scripts { prepare: prepare.into(), command })
}

/// Returns the programs that compile a C file, and their libraries.
fn toolchain() -> anyhow::Result<Vec<PathBuf>> {
    let needed = |what: &str| Refusal::installation(messages::no_compiler(what));
    let mut programs = Vec::new();
    for name in ["make", "gcc", "as", "ld"] {
        let path = crate::executable::resolve(name.as_ref())
            .ok_or_else(|| needed(&format!("{name} not found")))?;
        programs.push(path);
    }
    for name in ["cc1", "collect2"] {
        let output = Command::new(&programs[1]).arg(format!("-print-prog-name={name}")).output();
        let path = output.map(|output| {
            PathBuf::from(String::from_utf8_lossy(&output.stdout).trim().to_string())
        });
        let path = path.ok().filter(|path| path.is_absolute() && path.is_file());
        programs.push(path.ok_or_else(|| needed(&format!("gcc has no {name}")))?);
    }
    let mut files = Vec::new();
    for program in programs {
        let output = Command::new("ldd").arg(&program).output().context("ldd")?;
        // `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)`, and the loader without an arrow.
        let libraries = String::from_utf8_lossy(&output.stdout).into_owned();
        let libraries =
            libraries.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
        files.extend(libraries.collect::<Vec<_>>());
        files.push(program);
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// Creates nested directories with files of about `bytes` bytes in total.
fn source_tree(
    root: &Path,
    files: u64,
    directories: u64,
    bytes: u64,
    random: &mut fastrand::Rng,
) -> std::io::Result<()> {
    let mut made = vec![root.to_path_buf()];
    std::fs::create_dir_all(root)?;
    while (made.len() as u64) < directories {
        let directory = made[random.usize(..made.len())].join(format!("directory{}", made.len()));
        std::fs::create_dir(&directory)?;
        made.push(directory);
    }
    let mean = (bytes / files) as usize;
    for file in 0..files {
        // Vary the sizes around the mean.
        let size = mean / 2 + random.usize(..=mean);
        let directory = &made[random.usize(..made.len())];
        std::fs::write(directory.join(format!("file{file}.c")), text(size, random))?;
    }
    Ok(())
}

/// Generates text that resembles a program's: short words in short lines.
fn text(size: usize, random: &mut fastrand::Rng) -> String {
    const WORDS: [&str; 12] = [
        "static", "struct", "inode", "return", "if", "int", "lock", "unsigned", "page", "=",
        "NULL;", "{ }",
    ];
    let mut text = String::with_capacity(size + 80);
    while text.len() < size {
        for _ in 0..6 {
            text.push_str(WORDS[random.usize(..WORDS.len())]);
            text.push(' ');
        }
        text.push('\n');
    }
    text
}

/// Generates a C file without headers that is not trivial to compile.
fn c_source(number: u64, lines: u64, random: &mut fastrand::Rng) -> String {
    let mut text = format!("static int table{number}[256];\n");
    for function in 0..lines / 10 {
        let (shift, factor) = (random.u32(1..8), random.u32(3..999));
        let _ = write!(
            text,
            "int part{number}_{function}(int *samples, int length)\n{{\n\tint sum = {factor};\n\
             \tfor (int i = 0; i < length; i++) {{\n\t\tsum += samples[i] >> {shift};\n\
             \t\tif (sum & {factor})\n\t\t\ttable{number}[i & 255] += sum * {factor};\n\
             \t\telse\n\t\t\tsamples[i] ^= table{number}[(i + {factor}) & 255];\n\t}}\n\
             \treturn sum;\n}}\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(directory: &Path) -> (u64, u64, u64) {
        let mut counted = (0, 1, 0);
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                let (files, directories, bytes) = count(&entry.path());
                counted = (counted.0 + files, counted.1 + directories, counted.2 + bytes);
            } else {
                counted = (counted.0 + 1, counted.1, counted.2 + entry.metadata().unwrap().len());
            }
        }
        counted
    }

    #[test]
    fn source_tree_has_requested_size() {
        let folder = tempfile::tempdir().unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        source_tree(&folder.path().join("tree"), 500, 200, 4_800_000, &mut random).unwrap();
        let (files, directories, bytes) = count(&folder.path().join("tree"));
        assert_eq!((files, directories), (500, 200));
        assert!((4_600_000..=5_000_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn find_scaled_down_keeps_all_trees() {
        let folder = tempfile::tempdir().unwrap();
        find(folder.path(), 0.01).unwrap();
        let (files, _, bytes) = count(&folder.path().join("tree"));
        assert!(
            (32 * 3..=32 * 8).contains(&files) && bytes < 3_000_000,
            "{files} files, {bytes} bytes"
        );
        assert_eq!(std::fs::read_dir(folder.path().join("tree")).unwrap().count(), 32);
    }

    #[test]
    fn scripts_pass_the_shells_syntax_check() {
        let folder = tempfile::tempdir().unwrap();
        let mab = mab(folder.path(), 4, 1.0).unwrap();
        for script in [configure(8, 1.0), mab] {
            let checked = Command::new("sh").args(["-n", "-c", &script.command]).output().unwrap();
            assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
        }
    }

    #[test]
    fn generated_sources_compile() {
        let Ok(programs) = toolchain() else {
            eprintln!("missing: there is no gcc or make");
            return;
        };
        assert!(programs.iter().any(|path| path.ends_with("cc1")));
        assert!(programs.iter().any(|path| path.to_string_lossy().contains("libc.so.6")));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("part.c");
        std::fs::write(&file, c_source(0, 223, &mut fastrand::Rng::with_seed(1))).unwrap();
        let compiled = Command::new("gcc")
            .args(["-fsyntax-only", "-Wall", "-Werror"])
            .arg(&file)
            .output()
            .unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    }
}
