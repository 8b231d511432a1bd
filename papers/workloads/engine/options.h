/*
 * What the benchmarks on the engine have in common on their command lines, and the load that --load asks for.
 */
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
	bool load = false, check = false, sync = false;
	long threads = 2, seed = 1;
	double seconds = 2;

	/* Points into this object. */
	std::vector<option_row> rows();
	/* Where the run's copy goes: beside the data set, where its files can be linked, or where --scratch says. */
	std::string scratch_parent() const;
};

/* The option that says how large a data set is, which is also the field of the data set that says so. */
struct Scale {
	const char *name;
	long given; /* 0: not given */
	long standard;
};

/* Makes the database at `path` and returns the data set's fields, `seed` and the scale among them. */
using Load = Dataset::Fields (*)(const std::string &path, uint64_t scale, uint64_t seed);

/*
 * From a parsed command line to a data set that is there and has the given scale: starts the program, loads if
 * --load says so, and then exits; else fails with the command to load it unless there is one.
 */
Dataset prepare(const struct program &program, const CommonOptions &common, uint64_t format, const Scale &scale,
		Load load);

} // namespace engine

#endif
