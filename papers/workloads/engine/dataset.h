/*
 * A directory that holds one loaded database, written once and then only read.
 *
 *   DIR/loading      exists during a load and after an interrupted one; flock()ed by the loader
 *   DIR/db/          the RocksDB database, closed
 *   DIR/dataset      written last: program, format and the data's fields, one `name value` a line
 *
 * A measured run never opens DIR/db. It works on its own copy, in which the table files are hard
 * links. A RocksDB checkpoint does the same, but only of an open database, and opening a database
 * takes its lock and writes to it. A closed database with an empty write-ahead log can be linked as
 * it is, because table files never change. Several runs can therefore start from one read-only
 * directory at the same time.
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

	/*
	 * A data set of the program named in start_program(). `format` changes with the meaning of
	 * the bytes.
	 */
	Dataset(const std::string &directory, uint64_t format);

	/*
	 * Reads a complete data set's fields. Returns false if there is none; fails on a foreign or
	 * broken one.
	 */
	bool read();
	uint64_t field(const char *name) const;
	const Fields &fields() const { return fields_; }

	/* Fails, with the command that loads a data set, unless it is complete. */
	void need(const std::string &load_command);

	/*
	 * Prepares a load: the directory must be new, empty, or hold an interrupted load. Returns
	 * the database's path. If the program ends before finish_load(), the database is removed.
	 */
	std::string begin_load();
	void finish_load(const Fields &fields);

	/*
	 * Copies the database's files into `into`, which is created; table files are linked where
	 * possible.
	 */
	void clone(const std::string &into) const;
	/* Total size of the table files. */
	uint64_t bytes() const;

    private:
	std::string directory_, database_, marker_, loading_;
	uint64_t format_;
	Fields fields_;
};

} // namespace engine

#endif
