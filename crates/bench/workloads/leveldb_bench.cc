/*
 * LevelDB under many threads: the three db_bench workloads that contend for its mutexes.
 *
 * A Get takes DBImpl's only mutex twice, and a shard mutex of each LRU cache that it accesses. A
 * Put queues behind DBImpl's mutex and sleeps on a condition variable until the writer at the head
 * of the queue has written for it. The library is linked dynamically, so all of these can be
 * interposed.
 *
 * readwhilewriting has an additional thread that writes as fast as it can, as in db_bench. In the
 * output, writes and writes_per_sec are that thread's; ops, ops_per_sec, jain and min_max cover the
 * readers, and the processor time covers all threads.
 *
 * A value is a function of its key, so every read and the final scan of writing workloads verify
 * their values.
 */
#include "ending.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <sys/statvfs.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include <leveldb/cache.h>
#include <leveldb/db.h>
#include <leveldb/options.h>
#include <leveldb/write_batch.h>

namespace {

/* As in db_bench: 16 decimal digits and 100 bytes. */
constexpr size_t kKeyBytes = 16;
constexpr size_t kValueBytes = 100;
/* Larger than any database that --num allows in practice, so that reads contend for locks and not
 * for the file system. */
constexpr size_t kCacheBytes = size_t{512} << 20;
/* Space for the database: fillrandom writes for seconds, and old versions stay until a compaction.
 * */
constexpr uint64_t kRoomBytes = uint64_t{512} << 20;

using Key = std::array<char, kKeyBytes>;
using Value = std::array<char, kValueBytes>;

leveldb::Slice slice(const Key &key) { return {key.data(), key.size()}; }
leveldb::Slice slice(const Value &value) { return {value.data(), value.size()}; }

/* Written by hand, because snprintf would take as long as the Put. */
Key make_key(uint64_t number)
{
	Key key;
	for (size_t i = key.size(); i-- > 0; number /= 10)
		key[i] = static_cast<char>('0' + number % 10);
	return key;
}

Value make_value(uint64_t number)
{
	Value value;
	for (size_t at = 0; at < value.size(); at += sizeof(uint64_t)) {
		uint64_t word = random_next(&number);
		memcpy(&value[at], &word, std::min(sizeof word, value.size() - at));
	}
	return value;
}

/*
 * The database's directory: new and with an unpredictable name, so that removing it cannot remove
 * anything else. It is removed at the end, on failure, and on SIGINT, SIGTERM or SIGHUP.
 */
class Directory {
    public:
	/* An empty `parent` selects a tmpfs with enough room, because disks are not measured. */
	explicit Directory(const std::string &parent)
	{
		if (!parent.empty()) {
			if (!make(parent))
				die("leveldb_bench: cannot create a directory in %s: %s", parent.c_str(),
				    strerror(errno));
			return;
		}
		const char *tmpdir = getenv("TMPDIR");
		if ((has_room("/dev/shm") && make("/dev/shm")) || (tmpdir && *tmpdir && make(tmpdir)) ||
		    make("/tmp"))
			return;
		die("leveldb_bench: cannot create a directory in /dev/shm, $TMPDIR or /tmp");
	}

	const std::string &path() const { return path_; }

	void remove() const
	{
		/* The database may still be writing when a signal comes. A file created between the scan
		   and the rmdir needs another round. */
		std::error_code error;
		for (int round = 0; round < 100; round++) {
			std::filesystem::remove_all(path_, error);
			if (!error && !std::filesystem::exists(path_, error))
				return;
		}
	}

    private:
	/* A container's /dev/shm often has 64 MiB, too little for fillrandom. */
	static bool has_room(const char *parent)
	{
		struct statvfs space;
		return statvfs(parent, &space) == 0 &&
		       uint64_t{space.f_bavail} * space.f_frsize >= kRoomBytes;
	}

	bool make(const std::string &parent)
	{
		std::string name = parent + "/leveldb_bench.XXXXXX";
		if (!mkdtemp(name.data()))
			return false;
		path_ = name;
		return true;
	}

	std::string path_;
};

/* Removed by main, a failing thread or a signal, whichever ends the program first. */
Directory *directory;

void remove_directory() { directory->remove(); }

void check(const leveldb::Status &status)
{
	if (status.IsIOError())
		die("leveldb_bench: %s", status.ToString().c_str());
	/* With valid options and keys, any other error is the result of a broken lock. */
	if (!status.ok())
		die_inconsistent("leveldb_bench: %s", status.ToString().c_str());
}

enum Workload { kFillRandom, kReadRandom, kReadWhileWriting };
constexpr const char *kWorkloadNames[] = {"fillrandom", "readrandom", "readwhilewriting"};

struct Bench {
	leveldb::DB *db;
	uint64_t keys;
	bool checkpoint;
	struct window window;
};

struct Worker {
	Bench *bench;
	void (*operation)(Worker &);
	struct counter *counter;
	uint64_t measured; /* operations begun in the measured window */
	uint64_t random;
	std::vector<bool> written; /* fillrandom: keys written; per thread, so that no line is shared */
	std::string found;         /* reused, so that a Get does not allocate */
	pthread_t thread;
};

void get_one(Worker &self)
{
	uint64_t number = random_below(&self.random, self.bench->keys);
	check(self.bench->db->Get(leveldb::ReadOptions(), slice(make_key(number)), &self.found));
	if (leveldb::Slice(self.found) != slice(make_value(number)))
		die_inconsistent("leveldb_bench: key %" PRIu64 " has a wrong value", number);
}

void put_one(Worker &self)
{
	uint64_t number = random_below(&self.random, self.bench->keys);
	check(self.bench->db->Put(leveldb::WriteOptions(), slice(make_key(number)),
				  slice(make_value(number))));
	self.written[number] = true;
}

void *run_worker(void *argument)
{
	Worker &self = *static_cast<Worker *>(argument);
	pthread_barrier_wait(&self.bench->window.start_barrier);
	enum phase phase;
	while ((phase = window_phase(&self.bench->window)) != PHASE_STOP) {
		self.operation(self);
		counter_increment(self.counter);
		self.measured += phase == PHASE_MEASURE;
		if (self.bench->checkpoint)
			unconvoy_checkpoint_if_loaded();
	}
	return nullptr;
}

/* Writes all keys in order, by one thread. After the compaction they are in one sorted table, the
 * same file every time. */
void fill(leveldb::DB *db, uint64_t keys)
{
	for (uint64_t number = 0; number < keys;) {
		leveldb::WriteBatch batch;
		for (int i = 0; i < 1000 && number < keys; i++, number++)
			batch.Put(slice(make_key(number)), slice(make_value(number)));
		check(db->Write(leveldb::WriteOptions(), &batch));
	}
	db->CompactRange(nullptr, nullptr);
}

/* Checks that exactly the written keys exist, or all keys if `full`, each with its value. */
void check_written(leveldb::DB *db, const std::vector<Worker> &workers, uint64_t keys, bool full)
{
	std::unique_ptr<leveldb::Iterator> at(db->NewIterator(leveldb::ReadOptions()));
	at->SeekToFirst();
	for (uint64_t number = 0; number < keys; number++) {
		if (!full && std::none_of(workers.begin(), workers.end(),
					  [number](const Worker &worker) { return worker.written[number]; }))
			continue;
		/* Otherwise a disk failure would count as a broken lock. */
		check(at->status());
		if (!at->Valid() || at->key() != slice(make_key(number)) ||
		    at->value() != slice(make_value(number)))
			die_inconsistent("leveldb_bench: key %" PRIu64 " was written, but is missing or wrong",
					 number);
		at->Next();
	}
	check(at->status());
	if (at->Valid())
		die_inconsistent("leveldb_bench: key %s was never written", at->key().ToString().c_str());
}

} // namespace

int main(int argc, char **argv)
{
	long threads = 2, keys = 100000;
	double seconds = 2;
	Bench bench{};
	const char *workload_name = "readrandom", *parent = nullptr;
	const struct option_row rows[] = {
		{"workload", "NAME", OPTION_TEXT, &workload_name, 0, 0,
		 "fillrandom, readrandom or readwhilewriting"},
		{"threads", "N", OPTION_COUNT, &threads, 1, 4096,
		 "threads that read or write; readwhilewriting adds one writer"},
		{"seconds", "S", OPTION_REAL, &seconds, 0.01, 3600, "length of the measured window"},
		{"num", "N", OPTION_COUNT, &keys, 1, 1e7, "number of different keys"},
		CHECKPOINT_OPTION(&bench.checkpoint),
		{"dir", "DIR", OPTION_TEXT, &parent, 0, 0,
		 "parent of the temporary database directory; /dev/shm, $TMPDIR or /tmp if not given"},
	};
	const struct program program = {"leveldb_bench",
					"Threads read or write random keys of a LevelDB database.", rows,
					sizeof rows / sizeof *rows};
	parse_options(&program, argc, argv);
	auto workload =
		static_cast<Workload>(parse_choice(&program, "workload", workload_name, kWorkloadNames, 3));

	hold_signals();
	directory = new Directory(parent ? parent : "");
	clean_up_on_signals(remove_directory);

	std::unique_ptr<leveldb::Cache> cache(leveldb::NewLRUCache(kCacheBytes));
	leveldb::Options options;
	options.create_if_missing = true;
	options.error_if_exists = true;
	options.block_cache = cache.get();
	/* The values are random bytes; compression would only take processor time. */
	options.compression = leveldb::kNoCompression;
	leveldb::DB *opened = nullptr;
	check(leveldb::DB::Open(options, directory->path() + "/db", &opened));
	std::unique_ptr<leveldb::DB> db(opened);
	if (workload != kFillRandom)
		fill(db.get(), static_cast<uint64_t>(keys));

	bool extra_writer = workload == kReadWhileWriting;
	bench.db = db.get();
	bench.keys = static_cast<uint64_t>(keys);
	window_init(&bench.window, threads, threads + extra_writer);
	struct counter writes {}; /* the extra writer's, not among the readers' */

	std::vector<Worker> workers(static_cast<size_t>(threads + extra_writer));
	for (size_t i = 0; i < workers.size(); i++) {
		bool reads = workload != kFillRandom && i < static_cast<size_t>(threads);
		workers[i].bench = &bench;
		workers[i].operation = reads ? get_one : put_one;
		workers[i].counter = i < static_cast<size_t>(threads) ? &bench.window.counters[i] : &writes;
		workers[i].random = i;
		workers[i].written.resize(reads ? 0 : bench.keys);
		workers[i].thread = start_thread(run_worker, &workers[i]);
	}
	window_run(&bench.window, seconds);
	for (Worker &worker : workers)
		pthread_join(worker.thread, nullptr);

	if (workload != kReadRandom)
		check_written(db.get(), workers, bench.keys, workload != kFillRandom);
	db.reset();
	remove_directory();
	window_report(&bench.window);
	if (extra_writer) {
		uint64_t written = workers.back().measured;
		printf("writes %" PRIu64 "\n", written);
		printf("writes_per_sec %.1f\n", static_cast<double>(written) / bench.window.seconds);
	}
	return EXIT_SUCCESS;
}
