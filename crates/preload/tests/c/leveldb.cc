/* LevelDB with concurrent writers, snapshot readers and compactions. Afterwards the database is
 * reopened, and every key must have its last value. A write is a batch of two keys with equal
 * values, so no snapshot may show them with different values. */
#include <leveldb/db.h>
#include <leveldb/write_batch.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kWriters = 4, kReaders = 4, kKeys = 800, kRounds = 3;

std::string key(const char *side, int writer, int number)
{
	char text[40];
	snprintf(text, sizeof text, "%d-%05d-%s", writer, number, side);
	return text;
}

std::string value(int writer, int number, int round)
{
	std::string text = std::to_string(round) + ":";
	for (unsigned x = writer * 7919u + number; text.size() < 90; x = x * 1664525u + 1013904223u)
		text += std::to_string(x);
	return text;
}

[[noreturn]] void fail(const std::string &what)
{
	fprintf(stderr, "%s\n", what.c_str());
	_Exit(1);
}

void must(const leveldb::Status &status, const char *what)
{
	if (!status.ok())
		fail(std::string(what) + ": " + status.ToString());
}

std::unique_ptr<leveldb::DB> open(const char *path, bool create)
{
	leveldb::Options options;
	options.create_if_missing = options.error_if_exists = create;
	options.paranoid_checks = true;
	options.write_buffer_size = 64 << 10; /* the minimum, for many files and compactions */
	options.max_file_size = 1 << 20;
	leveldb::DB *db;
	must(leveldb::DB::Open(options, path, &db), "open");
	return std::unique_ptr<leveldb::DB>(db);
}

void write(leveldb::DB *db, int writer)
{
	for (int round = 0; round < kRounds; round++)
		for (int number = 0; number < kKeys; number++) {
			leveldb::WriteBatch batch;
			batch.Put(key("left", writer, number), value(writer, number, round));
			batch.Put(key("right", writer, number), value(writer, number, round));
			must(db->Write(leveldb::WriteOptions(), &batch), "write");
		}
}

void read(leveldb::DB *db, const std::atomic<bool> &done, unsigned x)
{
	do {
		x = x * 1664525u + 1013904223u;
		int writer = (x >> 8) % kWriters, number = (x >> 12) % kKeys;
		leveldb::ReadOptions options;
		options.snapshot = db->GetSnapshot();
		std::string left, right;
		leveldb::Status first = db->Get(options, key("left", writer, number), &left);
		leveldb::Status second = db->Get(options, key("right", writer, number), &right);
		db->ReleaseSnapshot(options.snapshot);
		if (first.IsNotFound() != second.IsNotFound() || left != right)
			fail("a snapshot shows half a batch");
		if (!first.IsNotFound())
			must(first, "read");
	} while (!done);
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	{
		std::unique_ptr<leveldb::DB> db = open(argv[1], true);
		std::atomic<bool> done{false};
		std::vector<std::thread> writers, readers;
		for (int i = 0; i < kReaders; i++)
			readers.emplace_back(read, db.get(), std::cref(done), i);
		for (int i = 0; i < kWriters; i++)
			writers.emplace_back(write, db.get(), i);
		for (std::thread &writer : writers)
			writer.join();
		done = true;
		for (std::thread &reader : readers)
			reader.join();
	}
	std::unique_ptr<leveldb::DB> db = open(argv[1], false);
	for (int writer = 0; writer < kWriters; writer++)
		for (int number = 0; number < kKeys; number++)
			for (const char *side : {"left", "right"}) {
				std::string got;
				must(db->Get(leveldb::ReadOptions(), key(side, writer, number), &got), "verify");
				if (got != value(writer, number, kRounds - 1))
					fail(key(side, writer, number) + " has a wrong value");
			}
	leveldb::ReadOptions checked;
	checked.verify_checksums = true;
	std::unique_ptr<leveldb::Iterator> all(db->NewIterator(checked));
	int keys = 0;
	for (all->SeekToFirst(); all->Valid(); all->Next())
		keys++;
	must(all->status(), "scan");
	printf("verified %d keys\n", keys);
	return 0;
}
