/*
 * Changes one row of a closed RocksDB database, to test the workloads' consistency checks:
 *
 *   alter_key DB delete KEY
 *   alter_key DB put KEY VALUE
 *   alter_key DB add KEY OFFSET AMOUNT   add AMOUNT to the byte at OFFSET of the value
 *
 * KEY and VALUE are in hexadecimal. Exits with 3 if the row does not exist, except for `put`.
 */
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include <rocksdb/db.h>

static std::string bytes(const char *hex)
{
	std::string made;
	for (unsigned byte; sscanf(hex, "%2x", &byte) == 1; hex += 2)
		made += static_cast<char>(byte);
	return made;
}

static void check(const rocksdb::Status &status)
{
	if (status.ok())
		return;
	fprintf(stderr, "alter_key: %s\n", status.ToString().c_str());
	exit(1);
}

int main(int argc, char **argv)
{
	if (argc < 4 || argc > 6)
		return 2;
	std::string action = argv[2], key = bytes(argv[3]), value;
	rocksdb::DB *opened = nullptr;
	check(rocksdb::DB::Open(rocksdb::Options(), argv[1], &opened));
	std::unique_ptr<rocksdb::DB> db(opened);
	if (action == "put") {
		value = bytes(argv[4]);
	} else {
		rocksdb::Status found = db->Get(rocksdb::ReadOptions(), key, &value);
		if (found.IsNotFound())
			return 3;
		check(found);
		if (action == "add")
			value.at(static_cast<size_t>(atoi(argv[4]))) += static_cast<char>(atoi(argv[5]));
	}
	check(action == "delete" ? db->Delete(rocksdb::WriteOptions(), key)
				 : db->Put(rocksdb::WriteOptions(), key, value));
	/* Flush the change into the table files, which a run copies. */
	check(db->Flush(rocksdb::FlushOptions()));
	check(db->Close());
	return 0;
}
