//! `unconvoy inspect` on a correct program whose locks change hands all the time.

mod stage;

use std::io::Read as _;
use std::process::Stdio;

use stage::{Running, Stage};

/// Six threads that hold a mutex or a reader-writer lock for 2 ms each, until they are killed.
const BUSY: &str = "\
#include <pthread.h>
#include <string.h>
#include <unistd.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static int writes;
static void *work(void *unused)
{
	for (;;) {
		if (writes)
			pthread_rwlock_wrlock(&rwlock);
		else
			pthread_mutex_lock(&mutex);
		usleep(2000);
		if (writes)
			pthread_rwlock_unlock(&rwlock);
		else
			pthread_mutex_unlock(&mutex);
	}
	return unused;
}
int main(int argc, char **argv)
{
	pthread_t threads[6];
	writes = argc > 1 && !strcmp(argv[1], \"rwlock\");
	for (int i = 0; i < 6; i++)
		pthread_create(&threads[i], 0, work, 0);
	write(1, \"\\n\", 1);
	pause();
	return 0;
}
";

/// Inspects the program a few times, and returns the reports.
fn reports(options: &[&str], which: &str) -> Option<Vec<String>> {
    let stage = Stage::new();
    let library = stage::library()?;
    stage::may_read_processes().then_some(())?;
    let source = stage.write("busy.c", BUSY);
    let program = stage.compile("busy", &source, &["-pthread"]).expect("a C compiler");
    let mut command = stage.process();
    command.env("UNCONVOY_LIBRARY", library).arg("run").args(options).arg("--");
    command.arg(program).arg(which).stdout(Stdio::piped());
    let mut running = Running(command.spawn().expect("the program starts"));
    let output = running.0.stdout.as_mut().expect("a pipe");
    output.read_exact(&mut [0]).expect("its threads have started");
    let id = running.0.id().to_string();
    let report = |_| {
        let output = stage.unconvoy().args(["inspect", &id]).output().expect("the command runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    Some((0..20).map(report).collect())
}

/// One reading found that a thread waits, a later one that it holds the lock.
#[test]
fn threads_that_take_turns_are_no_deadlock() {
    for (options, which) in
        [(&["--lock", "libc"][..], "mutex"), (&["--lock", "libc"], "rwlock"), (&[], "mutex")]
    {
        let Some(reports) = reports(options, which) else { return };
        for report in reports {
            assert!(!report.contains("Deadlock"), "{options:?} {which}:\n{report}");
        }
    }
}

/// The report called each holder stuck.
#[test]
fn holder_of_a_reader_writer_lock_changes() {
    let Some(reports) = reports(&[], "rwlock") else { return };
    let changed = reports.iter().filter(|report| report.contains("the holder changes")).count();
    // In some, the holder is again the one of the first reading.
    assert!(changed > reports.len() / 2, "{changed}: {}", reports[0]);
}
