//! What counts in the measured window of a workload program.

mod built;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command as Process;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use assert_cmd::Command;
use built::program;

/// Time limit of a command, so that no test hangs.
const LIMIT: Duration = Duration::from_secs(600);

/// Answers as Redis does, each command at once, but the first one of the connection after `pause`.
fn serve(stream: UnixStream, pause: Duration, values: &Mutex<HashMap<String, String>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a descriptor"));
    let mut writer = stream;
    let mut line = || -> Option<String> {
        let mut line = String::new();
        (reader.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_string())
    };
    let mut pause = Some(pause);
    // A command begins with `*` and its number of words. A word follows its length.
    while let Some(words) = line().and_then(|head| head.strip_prefix('*')?.parse::<usize>().ok()) {
        let word = |_| {
            line()?;
            line()
        };
        let Some(command) = (0..words).map(word).collect::<Option<Vec<String>>>() else { return };
        let answer = match &command[..] {
            [_, key] => {
                let value = values.lock().expect("no thread panics")[key].clone();
                format!("${}\r\n{value}\r\n", value.len())
            }
            [_, key, value] => {
                values.lock().expect("no thread panics").insert(key.clone(), value.clone());
                "+OK\r\n".to_string()
            }
            _ => panic!("{command:?}"),
        };
        thread::sleep(pause.take().unwrap_or_default());
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// The server pauses from before the window until after it: the pause is part of the window.
#[test]
fn kv_load_counts_a_pause_around_the_window() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    thread::spawn(move || {
        let all = Arc::new(Mutex::new(HashMap::new()));
        // The first connection stores the keys.
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let (pause, values) = (Duration::from_secs(2 * number as u64), Arc::clone(&all));
            thread::spawn(move || serve(stream, pause, &values));
        }
    });
    let mut client = Command::new(program("kv_load"));
    client.timeout(LIMIT).env_remove("LD_PRELOAD");
    client.args(["--protocol", "redis", "--connections", "1", "--depth", "1", "--keys", "5"]);
    client.args(["--warm-up", "0.2", "--seconds", "0.2", "--socket"]).arg(&socket);
    let ended = client.assert().success().stderr("");
    let text = String::from_utf8_lossy(&ended.get_output().stdout).into_owned();
    let rate = text.strip_prefix("rate ").and_then(|rest| rest.strip_suffix(" requests/s\n"));
    let rate: f64 = rate.and_then(|rate| rate.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    // One answer, 1.8 s after the warm-up, or later on a busy machine.
    assert!(rate > 0.0 && rate <= 5.0, "{text}");
}

/// A lock whose waiter waits from before the window of `hashtable` until its end, on the busiest
/// machine. `window_begin` and `window_end` in measure.h read the processor time: the first reading
/// waits until a thread waits for the lock, and the thread waits for the second reading.
const WAIT_AROUND_THE_WINDOW: &str = "\
#include <sys/syscall.h>
#include <unistd.h>

static int is_waiting, readings;

int getrusage(int who, void *usage)
{
    while (!__atomic_load_n(&is_waiting, __ATOMIC_SEQ_CST))
        usleep(1000);
    __atomic_fetch_add(&readings, 1, __ATOMIC_SEQ_CST);
    return (int)syscall(SYS_getrusage, who, usage);
}

int pthread_mutex_lock(void *mutex)
{
    (void)mutex;
    __atomic_store_n(&is_waiting, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&readings, __ATOMIC_SEQ_CST) < 2)
        usleep(1000);
    return 0;
}

int pthread_mutex_unlock(void *mutex)
{
    (void)mutex;
    return 0;
}
";

/// A thread that waits for a lock during the whole window has waited in it.
#[test]
fn hashtable_counts_a_wait_around_the_window() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (source, slow) = (directory.path().join("slow.c"), directory.path().join("slow.so"));
    std::fs::write(&source, WAIT_AROUND_THE_WINDOW).expect("a temporary file");
    let mut compiler = Process::new("cc");
    compiler.args(["-shared", "-fPIC", "-fno-builtin", "-o"]).arg(&slow).arg(&source);
    assert!(compiler.status().expect("cc runs (apt-get install gcc)").success());
    let mut table = Command::new(program("hashtable"));
    table.timeout(LIMIT).env("LD_PRELOAD", &slow);
    table.args(["--threads", "1", "--seconds", "0.2", "--latency"]);
    let ended = table.assert().success().stderr("");
    let text = String::from_utf8_lossy(&ended.get_output().stdout).into_owned();
    let longest = text.lines().find_map(|line| line.strip_prefix("max_ns ")?.parse::<f64>().ok());
    assert!(longest.is_some_and(|ns| ns > 1.5e8), "{text}");
}
