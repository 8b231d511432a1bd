//! The names of locks in the reports of `profile`, `run --stats` and `predict`.

mod stage;

use std::time::Duration;

use serde_json::Value;
use stage::{Stage, lacks_emulator};

/// Time limit for a command on a busy machine.
const LIMIT: Duration = Duration::from_secs(600);

/// Locks that are static, in a static array, a member on the heap, and on the heap without a type.
const NAMES: &str = "\
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
struct table { long size; pthread_mutex_t slots; long hits; };
static pthread_mutex_t alone = PTHREAD_MUTEX_INITIALIZER;
static struct table tables[2];
static void nap(void) { struct timespec time = { 0, 2000000 }; nanosleep(&time, 0); }
__attribute__((noinline)) void use_table(struct table *table)
{
	pthread_mutex_lock(&table->slots);
	table->hits++;
	nap();
	pthread_mutex_unlock(&table->slots);
}
__attribute__((noinline)) void use_bare(void *lock)
{
	pthread_rwlock_wrlock(lock);
	nap();
	pthread_rwlock_unlock(lock);
	__asm__ volatile(\"\");
}
static struct table *heap;
static void *bare;
static void *work(void *unused)
{
	for (int i = 0; i < 20; i++) {
		pthread_mutex_lock(&alone);
		nap();
		pthread_mutex_unlock(&alone);
		use_table(heap);
		use_table(&tables[1]);
		use_bare(bare);
	}
	return unused;
}
int main(void)
{
	pthread_t threads[3];
	heap = calloc(1, sizeof *heap);
	bare = calloc(1, sizeof(pthread_rwlock_t));
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], 0, work, 0);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], 0);
	return 0;
}
";

#[test]
#[ignore = "make test-all: needs QEMU's user mode"]
fn locks_have_same_names_in_all_reports() {
    if lacks_emulator() {
        return;
    }
    let stage = Stage::new();
    let source = stage.write("names.c", NAMES);
    stage.compile("names", &source, &["-O1", "-g", "-pthread"]).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = stage.unconvoy();
        let command = command.env_remove("UNCONVOY_LIBRARY").timeout(LIMIT);
        let output = command.args(arguments).assert().success().get_output().stdout.clone();
        String::from_utf8(output).unwrap()
    };
    let locks = |file: &str| {
        let report: Value = serde_json::from_str(&stage.read(file)).unwrap();
        let locks = report["locks"].as_array().unwrap().clone();
        locks.iter().map(|lock| lock["name"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    run(&["profile", "--period", "0.001", "--json", "profile.json", "--", "./names"]);
    run(&["predict", "--rate", "1", "--json", "predict.json", "--", "./names"]);
    run(&["run", "--stats", "stats.json", "--", "./names"]);
    let statistics = run(&["stats", "stats.json"]);
    let (profile, predict) = (locks("profile.json"), locks("predict.json"));
    assert_eq!((profile.len(), predict.len()), (4, 4), "{profile:?} {predict:?}");
    for name in ["alone", "tables[].slots", "table::slots", "use_bare (names.c:17)"] {
        let has_name = |names: &[String]| names.iter().any(|found| found.ends_with(name));
        assert!(has_name(&profile) && has_name(&predict), "{name}: {profile:?} {predict:?}");
        assert!(statistics.contains(name), "{name}: {statistics}");
    }
}
