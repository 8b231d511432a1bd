/* The command-line options that all benchmarks on the engine share. */
#ifndef UNCONVOY_ENGINE_OPTIONS_H
#define UNCONVOY_ENGINE_OPTIONS_H

#include <cstdint>
#include <string>
#include <vector>

#include "measure.h"
#include "dataset.h"

namespace engine {

struct CommonOptions {
	const char *data = nullptr, *scratch = nullptr;
	bool load = false, check = false, sync = false, checkpoint = false;
	long threads = 2, seed = 1;
	double seconds = 2;

	/* The rows point into this object. */
	std::vector<option_row> rows();
	/*
	 * Directory of the run's copy: --scratch, or beside the data set, where files can be
	 * linked.
	 */
	std::string scratch_parent() const;
};

/* The data set's size: an option, and a field of the same name. */
struct Scale {
	const char *name;
	long given; /* 0: not given */
	long standard;
};

/* Makes the database at `path`; returns the data set's fields, including `seed` and the scale. */
using Load = Dataset::Fields (*)(const std::string &path, uint64_t scale, uint64_t seed);

/*
 * Calls start_program() and returns the data set that the command line names. With --load, loads
 * the data set and exits. Otherwise fails, and names the load command, if there is no data set.
 */
Dataset prepare(const struct program &program, const CommonOptions &common, uint64_t format,
		const Scale &scale, Load load);

} // namespace engine

#endif
