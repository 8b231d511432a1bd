/*
 * The RocksDB database of a run: opened from a data set, or filled by a load.
 *
 * Options, where they are not RocksDB's own defaults:
 *
 *   memtable 64 MiB, up to 4      a flush runs beside the writers and never stops them
 *   block cache 1.5 x the data    reads meet the cache's and the engine's locks, not the file system
 *   Bloom filters, 10 bits a key  a lookup of a row that is not there reads no block
 *   2 background jobs             one flush, one compaction
 *   no compression                most columns are random characters
 *   no statistics, no info log    neither threads nor writes of their own
 *
 * The write-ahead log is written and, without --sync, not synchronised: the studies keep database and log in
 * tmpfs, where a sync costs nothing, so that locks and not disks limit the rate. The log's write still happens
 * in every commit, in the group that RocksDB forms of the commits that wait.
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
 * Writes rows in the order of their keys straight into table files, without log and memtable, and takes them
 * into a new database at the end.
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

/* A copy of a data set, opened for transactions and with every block in the cache. */
class Database {
    public:
	/* In a new scratch directory under `parent`. */
	Database(const Dataset &dataset, const std::string &parent);
	~Database();

	rocksdb::TransactionDB &transactions() { return *db_; }

    private:
	std::unique_ptr<rocksdb::TransactionDB> db_;
};

/* The rows whose keys begin with `prefix`, in order; one thread, nobody writing. */
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
