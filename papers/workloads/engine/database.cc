#include "database.h"

#include <filesystem>
#include <system_error>

#include <rocksdb/cache.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>

namespace engine {

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr uint64_t kFileBytes = 64 * kMiB;

/* Discards RocksDB's info log. */
class Silent : public rocksdb::Logger {
    public:
	using rocksdb::Logger::Logv;
	void Logv(const char *, va_list) override {}
};

rocksdb::Options make_options(uint64_t data_bytes)
{
	rocksdb::BlockBasedTableOptions table;
	table.block_cache = rocksdb::NewLRUCache(data_bytes * 3 / 2 + 64 * kMiB);
	table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));

	rocksdb::Options options;
	options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
	options.write_buffer_size = 64 * kMiB;
	options.max_write_buffer_number = 4;
	options.target_file_size_base = kFileBytes;
	options.max_background_jobs = 2;
	options.compression = rocksdb::kNoCompression;
	options.info_log = std::make_shared<Silent>();
	options.stats_dump_period_sec = 0;
	options.stats_persist_period_sec = 0;
	/* The memtable's contents are in the log, or belong to a copy that is thrown away. */
	options.avoid_flush_during_shutdown = true;
	return options;
}

} // namespace

void check(const rocksdb::Status &status)
{
	if (status.IsCorruption())
		inconsistent("RocksDB: %s", status.ToString().c_str());
	if (!status.ok())
		fail("RocksDB: %s", status.ToString().c_str());
}

Loader::Loader(const std::string &path)
	: options_(make_options(0)), writer_(rocksdb::EnvOptions(), options_), path_(path)
{
	std::error_code error;
	std::filesystem::create_directory(path, error);
	if (error)
		fail("%s: %s", path.c_str(), error.message().c_str());
}

void Loader::add(const Key &key, const rocksdb::Slice &value)
{
	if (!open_) {
		files_.push_back(path_ + "/loaded-" + std::to_string(files_.size()));
		check(writer_.Open(files_.back()));
		open_ = true;
	}
	check(writer_.Put(key, value));
	/* The builder's buffered bytes are not counted, which does not matter at this size. */
	if (writer_.FileSize() >= kFileBytes)
		end_file();
}

void Loader::end_file()
{
	check(writer_.Finish());
	open_ = false;
}

void Loader::finish()
{
	if (open_)
		end_file();
	options_.create_if_missing = true;
	options_.error_if_exists = true;
	rocksdb::DB *opened = nullptr;
	check(rocksdb::DB::Open(options_, path_, &opened));
	std::unique_ptr<rocksdb::DB> db(opened);
	rocksdb::IngestExternalFileOptions ingestion;
	ingestion.move_files = true;
	ingestion.snapshot_consistency = false;
	check(db->IngestExternalFile(files_, ingestion));
	check(db->Close());
}

Database::Database(const Dataset &dataset, const std::string &parent)
{
	std::string path = make_scratch(parent) + "/db";
	dataset.clone(path);
	rocksdb::TransactionDB *opened = nullptr;
	check(rocksdb::TransactionDB::Open(make_options(dataset.bytes()),
					   rocksdb::TransactionDBOptions(), path, &opened));
	db_.reset(opened);
	/* Reads every block into the cache, and so checks its checksum. */
	std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(rocksdb::ReadOptions()));
	for (at->SeekToFirst(); at->Valid(); at->Next())
		;
	check(at->status());
}

Database::~Database()
{
	db_.reset();
	remove_doomed();
}

Rows::Rows(Database &database, const Key &prefix)
	: prefix_(rocksdb::Slice(prefix).ToString()),
	  at_(database.transactions().NewIterator(rocksdb::ReadOptions()))
{
	at_->Seek(prefix_);
}

bool Rows::valid() const
{
	if (at_->Valid())
		return at_->key().starts_with(prefix_);
	check(at_->status());
	return false;
}

KeyReader Rows::key() const
{
	rocksdb::Slice rest = at_->key();
	rest.remove_prefix(prefix_.size());
	return KeyReader(rest);
}

} // namespace engine
