/*
 * A directory that holds one loaded database, made once and then only read.
 *
 *   DIR/loading      while a load runs, and after one that was cut short; locked (flock) by the loader
 *   DIR/db/          the RocksDB database, closed
 *   DIR/dataset      written last: program, format and whatever describes the data, one `name value` a line
 *
 * A measured run never opens DIR/db. It gets a copy of its own, in which the table files are hard links: that
 * is what a RocksDB checkpoint is, but a checkpoint wants the database open, which takes its lock and writes
 * to it. A closed database whose write-ahead log is empty can be linked as it is, since table files never
 * change; so several runs can start from one read-only directory at the same time.
 */
#ifndef UNCONVOY_ENGINE_DATASET_H
#define UNCONVOY_ENGINE_DATASET_H

#include <cstdint>
#include <map>
#include <string>

namespace engine {

class Dataset {
    public:
	using Fields = std::map<std::string, uint64_t>;

	/* Of the program that start_program() named; `format` changes whenever the meaning of the bytes does. */
	Dataset(const std::string &directory, uint64_t format);

	/* Reads the fields of a complete data set; false if there is none. A foreign or broken one fails. */
	bool read();
	uint64_t field(const char *name) const;
	const Fields &fields() const { return fields_; }

	/* Fails with the command that loads one, unless the data set is complete. */
	void need(const std::string &load_command);

	/* Makes room for a load: the directory is new, empty, or has a load that was cut short. Returns the database's
	   path, which is doomed until finish_load(). */
	std::string begin_load();
	void finish_load(const Fields &fields);

	/* The database's files under `into`, which is made: tables as links where possible, all else as copies. */
	void clone(const std::string &into) const;
	/* Of all table files together. */
	uint64_t bytes() const;

    private:
	std::string directory_, database_, marker_, loading_;
	uint64_t format_;
	Fields fields_;
};

} // namespace engine

#endif
