#include "options.h"

#include <filesystem>
#include <system_error>

#include "scratch.h"

namespace engine {

std::vector<option_row> CommonOptions::rows()
{
	return {
		{"data", "DIR", OPTION_TEXT, &data, 0, 0, "directory of the loaded data set; required"},
		{"load", "", OPTION_FLAG, &load, 0, 0, "create DIR, load the data set into it, and exit"},
		{"check", "", OPTION_FLAG, &check, 0, 0,
		 "run the consistency checks on the data set, and exit"},
		{"seed", "N", OPTION_COUNT, &seed, 0, 1e15,
		 "seed of the data (--load) or of the threads' draws"},
		{"threads", "N", OPTION_COUNT, &threads, 1, 4096, "threads that run transactions"},
		{"seconds", "S", OPTION_REAL, &seconds, 0.01, 3600, "length of the measured window"},
		{"scratch", "DIR", OPTION_TEXT, &scratch, 0, 0,
		 "directory for the run's temporary copy; default: beside the data set"},
		CHECKPOINT_OPTION(&checkpoint),
		{"sync", "", OPTION_FLAG, &sync, 0, 0, "sync the log to disk in every commit"},
	};
}

std::string CommonOptions::scratch_parent() const
{
	if (scratch)
		return scratch;
	/* Resolved first: DIR may be "." or a symbolic link to another file system. */
	std::error_code error;
	std::string path = std::filesystem::canonical(data, error).parent_path().string();
	if (error)
		fail("%s: %s", data, error.message().c_str());
	return path;
}

namespace {

/* The load command, as a user would type it. */
std::string load_command(const CommonOptions &common, const Scale &scale)
{
	return std::string(program_name()) + " --data " + common.data + " --" + scale.name + " " +
	       std::to_string(scale.given ? scale.given : scale.standard) + " --load";
}

void need_scale(const Dataset &dataset, const CommonOptions &common, const Scale &scale,
		long expected)
{
	auto loaded = static_cast<long>(dataset.field(scale.name));
	if (loaded != expected)
		fail("%s has --%s %ld and not %ld; load another directory, or remove this one", common.data,
		     scale.name, loaded, expected);
}

/* Loads the data set unless it exists with the same parameters. */
void load_once(Dataset &dataset, const CommonOptions &common, const Scale &scale, Load load)
{
	long wanted = scale.given ? scale.given : scale.standard;
	if (dataset.read()) {
		need_scale(dataset, common, scale, wanted);
		need_scale(dataset, common, {"seed", 0, 0}, common.seed);
	} else {
		uint64_t start = now_ns();
		std::string path = dataset.begin_load();
		dataset.finish_load(
			load(path, static_cast<uint64_t>(wanted), static_cast<uint64_t>(common.seed)));
		printf("load_seconds %.3f\n", static_cast<double>(now_ns() - start) / 1e9);
	}
	for (const auto &[name, value] : dataset.fields())
		printf("%s %" PRIu64 "\n", name.c_str(), value);
	printf("table_bytes %" PRIu64 "\n", dataset.bytes());
}

} // namespace

Dataset prepare(const struct program &program, const CommonOptions &common, uint64_t format,
		const Scale &scale, Load load)
{
	if (!common.data)
		usage_error(&program, "--data DIR is required");
	start_program(program.name);
	Dataset dataset(common.data, format);
	if (common.load) {
		load_once(dataset, common, scale, load);
		exit(EXIT_SUCCESS);
	}
	dataset.need(load_command(common, scale));
	if (scale.given)
		need_scale(dataset, common, scale, scale.given);
	return dataset;
}

} // namespace engine
