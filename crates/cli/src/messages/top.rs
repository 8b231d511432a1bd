//! Messages of `top`.

use unconvoy_measure::arguments::counted;

/// Behind the name of a process that has ended.
pub(crate) const ENDED: &str = ", ended";

pub(crate) fn is_thread(thread: u32, process: u32) -> String {
    format!("{thread} is a thread of process {process}: use `unconvoy top {process}`")
}

pub(crate) fn is_not_under_unconvoy(pid: u32) -> String {
    format!(
        "process {pid} does not run under unconvoy: start it with `unconvoy run`,\n\
         or record it as it is with `unconvoy profile --pid {pid}`"
    )
}

pub(crate) fn belongs_to_another_user(pid: u32, user: u32) -> String {
    if nix::unistd::geteuid().is_root() {
        return lacks_capability(pid);
    }
    format!(
        "process {pid} belongs to user {user}: use `sudo unconvoy top {pid}`, or run as that user"
    )
}

pub(crate) fn is_not_dumpable(pid: u32) -> String {
    if nix::unistd::geteuid().is_root() {
        return lacks_capability(pid);
    }
    format!("process {pid} is not dumpable, which hides its memory: use `sudo unconvoy top {pid}`")
}

/// As root, such as in a container.
pub(crate) fn lacks_capability(pid: u32) -> String {
    format!(
        "process {pid} is out of reach: root needs CAP_SYS_PTRACE in the user namespace of {pid}"
    )
}

pub(crate) fn is_in_another_ipc_namespace(pid: u32) -> String {
    format!(
        "process {pid} has its own IPC namespace: run `unconvoy top` in its container, or as root"
    )
}

pub(crate) fn other_version(pid: u32, version: u32) -> String {
    format!(
        "process {pid} runs another version of unconvoy (format {}.{}):\n\
         use the `unconvoy` of that version, or restart the process",
        version >> 16,
        version & 0xffff
    )
}

pub(crate) fn cannot_attach(pid: u32, error: &std::io::Error) -> String {
    format!("cannot attach the shared memory of process {pid}: {error}")
}

pub(crate) fn has_no_table(pid: u32) -> String {
    format!("process {pid} shows an invalid address: its memory may be damaged")
}

pub(crate) fn cannot_record(pid: u32, error: &std::io::Error) -> String {
    format!("process {pid} has no shared memory to record its waits: {error}")
}

pub(crate) fn nobody_shows_itself() -> String {
    "none of your processes under unconvoy has waited for a lock:\n\
     start one with `unconvoy run -- PROGRAM`, or name a process"
        .to_string()
}

pub(crate) fn choose_one() -> String {
    "several processes: choose one with `unconvoy top PID`".to_string()
}

pub(crate) fn has_long_waits(pid: u32, threads: usize) -> String {
    let have = if threads == 1 { "has" } else { "have" };
    let threads = counted(threads as u64, "thread");
    format!(
        "{threads} {have} waited for a lock for over a second; such a wait counts below once it \
         ends:\nsee `unconvoy inspect {pid}`"
    )
}

pub(crate) fn has_no_page() -> String {
    "no thread has waited for a lock yet, or the process runs with `--lock libc`".to_string()
}

pub(crate) fn hides_itself(pid: u32) -> String {
    format!("process {pid} hides itself: it was started with UNCONVOY_TOP=0")
}

pub(crate) fn has_no_wait() -> String {
    "no wait for a lock has ended since this command watches".to_string()
}

pub(crate) fn is_filtered() -> String {
    "no thread has waited for a lock yet, or the process's system-call filter (seccomp) hides it:\n\
     start it with UNCONVOY_TOP=1 if the filter allows shmget, shmat and shmctl"
        .to_string()
}

pub(crate) fn has_no_stacks() -> String {
    "the process records no call stacks, so places and some names are unknown".to_string()
}

pub(crate) fn file_is_gone(name: &str) -> String {
    format!("no names for {name}, which was replaced or removed: start the program again")
}

pub(crate) fn table_is_full() -> String {
    "some locks or places are missing, because the process's table is full".to_string()
}

#[cfg(test)]
pub(crate) fn samples() -> Vec<String> {
    let denied = std::io::Error::from_raw_os_error(13);
    vec![
        is_thread(4712, 4711),
        is_not_under_unconvoy(4711),
        belongs_to_another_user(4711, 1000),
        is_not_dumpable(4711),
        lacks_capability(4711),
        is_in_another_ipc_namespace(4711),
        other_version(4711, 1 << 16 | 2),
        cannot_attach(4711, &denied),
        has_no_table(4711),
        cannot_record(4711, &denied),
        nobody_shows_itself(),
        choose_one(),
        has_long_waits(4711, 2),
        has_no_page(),
        hides_itself(4711),
        has_no_wait(),
        is_filtered(),
        has_no_stacks(),
        file_is_gone("server"),
        table_is_full(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_gets_no_advice_of_sudo() {
        let is_root = nix::unistd::geteuid().is_root();
        for message in [belongs_to_another_user(1, 0), is_not_dumpable(1)] {
            assert_ne!(message.contains("sudo"), is_root, "{message}");
        }
    }

    #[test]
    fn long_waits_are_counted() {
        assert!(has_long_waits(7, 1).starts_with("1 thread has waited"));
        assert!(has_long_waits(7, 2).starts_with("2 threads have waited"));
    }

    #[test]
    fn process_without_a_page_may_have_libcs_locks() {
        assert!(has_no_page().contains("--lock libc"));
    }
}
