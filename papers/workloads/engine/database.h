/*
 * The RocksDB database of a run, opened from a data set, and the loader that fills a data set.
 *
 * Options that differ from RocksDB's defaults:
 *
 *   memtable 64 MiB, up to 4      a flush runs beside the writers and never stops them
 *   block cache 1.5 x the data    reads meet the cache's and engine's locks, not the file system
 *   Bloom filters, 10 bits a key  a lookup of a missing row reads no block
 *   2 background jobs             one flush, one compaction
 *   no compression                most columns are random characters
 *   no statistics, no info log    no threads or writes of their own
 *
 * Every commit writes the write-ahead log, in the group that RocksDB forms of waiting commits.
 * Without --sync the log is not synchronised. The studies keep database and log in tmpfs, where a
 * sync is free, so that locks and not disks limit the rate.
 */
#ifndef UNCONVOY_ENGINE_DATABASE_H
#define UNCONVOY_ENGINE_DATABASE_H

#include <memory>
#include <string>
#include <vector>

#include <rocksdb/iterator.h>
#include <rocksdb/options.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/utilities/transaction_db.h>

#include "dataset.h"
#include "rows.h"

namespace engine {

/* Fails unless `status` is good. */
void check(const rocksdb::Status &status);

/*
 * Writes rows in key order straight into table files, without log and memtable, and moves them into
 * a new database at the end.
 */
class Loader {
    public:
	explicit Loader(const std::string &path);

	void add(const Key &key, const rocksdb::Slice &value);
	template <class Row> void add(const Key &key, const Row &row) { add(key, encode(row)); }
	void finish();

    private:
	void end_file();

	rocksdb::Options options_;
	rocksdb::SstFileWriter writer_;
	std::string path_;
	std::vector<std::string> files_;
	bool open_ = false;
};

/* A copy of a data set, opened for transactions, with every block in the cache. */
class Database {
    public:
	/* Makes the copy in a new scratch directory under `parent`. */
	Database(const Dataset &dataset, const std::string &parent);
	~Database();

	rocksdb::TransactionDB &transactions() { return *db_; }

    private:
	std::unique_ptr<rocksdb::TransactionDB> db_;
};

/*
 * Iterates over the rows whose keys begin with `prefix`. For one thread, without concurrent
 * writers.
 */
class Rows {
    public:
	Rows(Database &database, const Key &prefix);

	bool valid() const;
	void next() { at_->Next(); }
	KeyReader key() const;
	template <class Row> Row row() const { return decode<Row>(at_->value()); }
	rocksdb::Slice value() const { return at_->value(); }

    private:
	std::string prefix_;
	std::unique_ptr<rocksdb::Iterator> at_;
};

} // namespace engine

#endif
