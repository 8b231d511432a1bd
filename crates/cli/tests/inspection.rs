//! A program in which nothing can be replaced runs, and one line says why.

mod stage;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use predicates::prelude::*;
use predicates::str::contains;
use stage::Stage;

const PROGRAM: &str = "#include <stdio.h>\nint main(void) { puts(\"ran\"); return 7; }\n";

fn runs_with_one_line(stage: &Stage, program: &Path, reason: &str) {
    let one_line = predicate::function(|text: &str| text.lines().count() == 1);
    stage
        .unconvoy()
        .args(["run", "--"])
        .arg(program)
        .assert()
        .code(7)
        .stdout("ran\n")
        .stderr(contains("nothing is replaced").and(contains(reason)).and(one_line));
}

#[test]
fn a_dynamic_program_runs_in_silence() {
    let stage = Stage::new();
    let source = stage.write("program.c", PROGRAM);
    let program = stage.compile("program", &source, &[]).unwrap();
    let assert = stage.unconvoy().args(["run", "--"]).arg(program).assert();
    assert.code(7).stdout("ran\n").stderr(predicate::str::is_empty());
}

#[test]
fn a_static_program() {
    let stage = Stage::new();
    let source = stage.write("program.c", PROGRAM);
    match stage.compile("static", &source, &["-static"]) {
        Ok(program) => runs_with_one_line(&stage, &program, "static"),
        Err(why) => println!("skipped: this compiler does not link statically: {why}"),
    }
}

#[test]
fn a_static_position_independent_program() {
    let stage = Stage::new();
    let source = stage.write("program.c", PROGRAM);
    match stage.compile("static", &source, &["-static-pie", "-fPIE"]) {
        Ok(program) => runs_with_one_line(&stage, &program, "static"),
        Err(why) => println!("skipped: this compiler does not link static PIEs: {why}"),
    }
}

#[test]
fn a_go_program() {
    // The linker's mark alone makes it one here: no Go toolchain is needed.
    let stage = Stage::new();
    let mark = "__attribute__((section(\".go.buildinfo\"), used)) static const char mark[] = \"Go\";\n";
    let source = stage.write("program.c", &format!("{PROGRAM}{mark}"));
    let program = stage.compile("go", &source, &[]).unwrap();
    runs_with_one_line(&stage, &program, "Go");
}

#[test]
fn a_go_program_that_locks_through_libc_is_not_named() {
    let stage = Stage::new();
    let mark = "__attribute__((section(\".go.buildinfo\"), used)) static const char mark[] = \"Go\";\n";
    let lock = "#include <pthread.h>\npthread_mutex_t m;\nint lock(void) { return pthread_mutex_trylock(&m); }\n";
    let source = stage.write("program.c", &format!("{PROGRAM}{mark}{lock}"));
    let program = stage.compile("cgo", &source, &["-pthread"]).unwrap();
    let assert = stage.unconvoy().args(["run", "--"]).arg(program).assert();
    assert.code(7).stderr(predicate::str::is_empty());
}

#[test]
fn a_set_user_id_program() {
    let stage = Stage::new();
    let source = stage.write("program.c", PROGRAM);
    let program = stage.compile("setuid", &source, &[]).unwrap();
    // 65534 is nobody, which only root can give a file to.
    if chown(&program, Some(65534), None).is_err() {
        println!("skipped: only root can make a file of another user's");
        return;
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let flags = nix::sys::statvfs::statvfs(&program).unwrap().flags();
    if flags.contains(nix::sys::statvfs::FsFlags::ST_NOSUID) {
        println!("skipped: the temporary directory is mounted nosuid");
        return;
    }
    runs_with_one_line(&stage, &program, "set-user-ID");
}

#[test]
fn a_script_for_such_a_program() {
    let stage = Stage::new();
    let source = stage.write("program.c", PROGRAM);
    let Ok(program) = stage.compile("static", &source, &["-static"]) else {
        println!("skipped: this compiler does not link statically");
        return;
    };
    let script = stage.script("script", &format!("#!{}\n", program.display()));
    runs_with_one_line(&stage, &script, "a script for");
}

#[test]
fn a_program_for_musl() {
    let stage = Stage::new();
    let source = stage.write("program.c", PROGRAM);
    let loader = "-Wl,--dynamic-linker=/nonexistent/ld-musl-x86_64.so.1";
    let program = stage.compile("musl", &source, &[loader]).unwrap();
    let assert = stage.unconvoy().args(["run", "--"]).arg(program).assert();
    assert.code(127).stderr(contains("uses musl").and(contains("is not installed")));
}

#[test]
fn a_program_for_another_machine() {
    let stage = Stage::new();
    let source = stage.write("program.c", PROGRAM);
    let program = stage.compile("foreign", &source, &[]).unwrap();
    let mut bytes = fs::read(&program).unwrap();
    // e_machine, two bytes at 18: an S/390 runs nothing here, with binfmt_misc or without.
    bytes[18..20].copy_from_slice(&22_u16.to_ne_bytes());
    fs::write(&program, bytes).unwrap();
    let assert = stage.unconvoy().args(["run", "--"]).arg(program).assert();
    assert.code(126).stderr(contains("S390x").and(contains("nothing is replaced")));
}

#[test]
fn compare_says_it_too() {
    let stage = Stage::new();
    let source = stage.write("program.c", "int main(void) { return 0; }\n");
    let Ok(program) = stage.compile("static", &source, &["-static"]) else {
        println!("skipped: this compiler does not link statically");
        return;
    };
    let mut command = stage.unconvoy();
    command.args(["compare", "--runs", "1", "--quiet", "--"]).arg(program);
    command.assert().success().stderr(contains("nothing is replaced").and(contains("static")));
}
