//! A program without replaceable locks runs, with one line that says why nothing is replaced.

mod stage;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use predicates::prelude::*;
use predicates::str::contains;
use stage::Stage;

const PROGRAM: &str = "#include <stdio.h>\nint main(void) { puts(\"ran\"); return 7; }\n";

fn assert_runs_with_one_line(stage: &Stage, program: &Path, reason: &str) {
    let one_line = predicate::function(|text: &str| text.lines().count() == 1);
    stage
        .unconvoy()
        .args(["run", "--"])
        .arg(program)
        .assert()
        .code(7)
        .stdout("ran\n")
        .stderr(contains("no lock is replaced").and(contains(reason)).and(one_line));
}

#[test]
fn dynamic_program_runs_without_message() {
    let stage = Stage::new();
    let source = stage.write("program.c", PROGRAM);
    let program = stage.compile("program", &source, &[]).unwrap();
    let assert = stage.unconvoy().args(["run", "--"]).arg(program).assert();
    assert.code(7).stdout("ran\n").stderr(predicate::str::is_empty());
}

#[test]
fn static_program_is_named() {
    let stage = Stage::new();
    let source = stage.write("program.c", PROGRAM);
    match stage.compile("static", &source, &["-static"]) {
        Ok(program) => assert_runs_with_one_line(&stage, &program, "static"),
        Err(why) => println!("skipped: this compiler does not link statically: {why}"),
    }
}

#[test]
fn static_position_independent_program_is_named() {
    let stage = Stage::new();
    let source = stage.write("program.c", PROGRAM);
    match stage.compile("static", &source, &["-static-pie", "-fPIE"]) {
        Ok(program) => assert_runs_with_one_line(&stage, &program, "static"),
        Err(why) => println!("skipped: this compiler does not link static PIEs: {why}"),
    }
}

#[test]
fn go_program_is_named() {
    // The section that Go's linker adds is enough; no Go toolchain is needed.
    let stage = Stage::new();
    let mark =
        "__attribute__((section(\".go.buildinfo\"), used)) static const char mark[] = \"Go\";\n";
    let source = stage.write("program.c", &format!("{PROGRAM}{mark}"));
    let program = stage.compile("go", &source, &[]).unwrap();
    assert_runs_with_one_line(&stage, &program, "Go");
}

#[test]
fn go_program_that_uses_libc_locks_is_not_named() {
    let stage = Stage::new();
    let mark =
        "__attribute__((section(\".go.buildinfo\"), used)) static const char mark[] = \"Go\";\n";
    let lock = "#include <pthread.h>\npthread_mutex_t m;\n\
        int lock(void) { return pthread_mutex_trylock(&m); }\n";
    let source = stage.write("program.c", &format!("{PROGRAM}{mark}{lock}"));
    let program = stage.compile("cgo", &source, &["-pthread"]).unwrap();
    let assert = stage.unconvoy().args(["run", "--"]).arg(program).assert();
    assert.code(7).stderr(predicate::str::is_empty());
}

#[test]
fn set_user_id_program_is_named() {
    let stage = Stage::new();
    let source = stage.write("program.c", PROGRAM);
    let program = stage.compile("setuid", &source, &[]).unwrap();
    // User 65534 is nobody. Only root can give it a file.
    if chown(&program, Some(65534), None).is_err() {
        println!("skipped: only root can give a file to another user");
        return;
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let flags = nix::sys::statvfs::statvfs(&program).unwrap().flags();
    if flags.contains(nix::sys::statvfs::FsFlags::ST_NOSUID) {
        println!("skipped: the temporary directory is mounted nosuid");
        return;
    }
    assert_runs_with_one_line(&stage, &program, "set-user-ID");
}

#[test]
fn script_of_static_interpreter_is_named() {
    let stage = Stage::new();
    let source = stage.write("program.c", PROGRAM);
    let Ok(program) = stage.compile("static", &source, &["-static"]) else {
        println!("skipped: this compiler does not link statically");
        return;
    };
    let script = stage.script("script", &format!("#!{}\n", program.display()));
    assert_runs_with_one_line(&stage, &script, "a script for");
}

#[test]
fn musl_program_is_named() {
    let stage = Stage::new();
    let source = stage.write("program.c", PROGRAM);
    let loader = "-Wl,--dynamic-linker=/nonexistent/ld-musl-x86_64.so.1";
    let program = stage.compile("musl", &source, &[loader]).unwrap();
    let assert = stage.unconvoy().args(["run", "--"]).arg(program).assert();
    assert.code(127).stderr(contains("uses musl").and(contains("is not installed")));
}

#[test]
fn program_for_another_machine_exits_126() {
    let stage = Stage::new();
    let source = stage.write("program.c", PROGRAM);
    let program = stage.compile("foreign", &source, &[]).unwrap();
    let mut bytes = fs::read(&program).unwrap();
    // e_machine, two bytes at offset 18: S/390, which no machine runs here, even with binfmt_misc.
    bytes[18..20].copy_from_slice(&22_u16.to_ne_bytes());
    fs::write(&program, bytes).unwrap();
    let assert = stage.unconvoy().args(["run", "--"]).arg(program).assert();
    assert.code(126).stderr(contains("S390x").and(contains("no lock is replaced")));
}

#[test]
fn compare_warns_of_static_program() {
    let stage = Stage::new();
    let source = stage.write("program.c", "int main(void) { return 0; }\n");
    let Ok(program) = stage.compile("static", &source, &["-static"]) else {
        println!("skipped: this compiler does not link statically");
        return;
    };
    let mut command = stage.unconvoy();
    command.args(["compare", "--runs", "1", "--quiet", "--"]).arg(program);
    command.assert().success().stderr(contains("no lock is replaced").and(contains("static")));
}
