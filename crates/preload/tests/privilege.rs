//! The library in a program that runs with more privilege than its caller, as a set-user-ID program
//! that is linked with the library does.

mod support;

use std::fs::{Permissions, copy, set_permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;

use support::{compile, library, plain, run};

/// An unprivileged user: `nobody`.
const USER: u32 = 65534;

#[test]
fn privileged_program_ignores_callers_settings() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can make a set-user-ID program for another user");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name);
    let permit = |name: &str, mode| {
        set_permissions(at(name), Permissions::from_mode(mode)).expect("permissions");
    };
    permit("", 0o755);
    copy(library(), at("libunconvoy.so")).expect("a copy that every user can read");
    permit("libunconvoy.so", 0o755);
    let linked = at("libunconvoy.so").display().to_string();
    let program = compile(directory.path(), "privilege.c", &["-Wl,--no-as-needed", &linked]);

    let outcome = |name: &str| {
        let mut command = plain(&program);
        command.uid(USER).gid(USER).env("UNCONVOY_STATS", at(name));
        let text = run(&mut command).success("the program").text();
        (text, at(name).exists())
    };
    // The caller may write into a directory of its own, which shows that the setting works.
    std::fs::create_dir(at("own")).expect("a directory");
    std::os::unix::fs::chown(at("own"), Some(USER), Some(USER)).expect("it is the caller's");
    assert_eq!(outcome("own/statistics"), ("secure 0\n".into(), true));
    permit("privilege", 0o4755);
    match outcome("roots-statistics") {
        (text, _) if text == "secure 0\n" => {
            println!("skipped: set-user-ID programs have no effect here (nosuid, no_new_privs)");
        }
        outcome => assert_eq!(outcome, ("secure 1\n".into(), false)),
    }
}
