#include "dataset.h"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "scratch.h"

namespace fs = std::filesystem;

namespace engine {

namespace {

[[noreturn]] void fail_with(const std::string &path, const std::error_code &error)
{
	fail("%s: %s", path.c_str(), error.message().c_str());
}

/* Writes a file atomically: it appears under its name only when complete. */
void write_whole(const std::string &path, const std::string &text)
{
	std::string draft = path + ".new";
	int descriptor = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	if (descriptor < 0 ||
	    write(descriptor, text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
	    fsync(descriptor) != 0 || close(descriptor) != 0 ||
	    rename(draft.c_str(), path.c_str()) != 0)
		fail("%s: %s", path.c_str(), strerror(errno));
}

/*
 * Copies by hand, because std::filesystem::copy_file reports a full disk as an input/output error.
 */
void copy_file(const std::string &from, const std::string &to)
{
	char buffer[1 << 16];
	ssize_t got;
	int source = open(from.c_str(), O_RDONLY | O_CLOEXEC);
	if (source < 0)
		fail("%s: %s", from.c_str(), strerror(errno));
	int copy = open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	while (copy >= 0 && (got = ::read(source, buffer, sizeof buffer)) > 0)
		for (ssize_t done = 0, put; done < got; done += put)
			if ((put = write(copy, buffer + done, static_cast<size_t>(got - done))) <= 0)
				fail("%s: %s", to.c_str(), strerror(errno));
	if (copy < 0 || got < 0 || close(copy) != 0)
		fail("cannot copy %s to %s: %s", from.c_str(), to.c_str(), strerror(errno));
	close(source);
}

} // namespace

Dataset::Dataset(const std::string &directory, uint64_t format)
	: directory_(directory), database_(directory + "/db"), marker_(directory + "/dataset"),
	  loading_(directory + "/loading"), format_(format)
{
}

bool Dataset::read()
{
	errno = 0;
	std::ifstream file(marker_);
	if (!file) {
		if (errno != ENOENT && errno != ENOTDIR)
			fail("%s: %s", marker_.c_str(), strerror(errno));
		return false;
	}
	std::string program, line;
	file >> program >> std::ws;
	if (program != program_name())
		fail("%s holds data of %s, not of %s; name another directory with --data",
		     directory_.c_str(), program.c_str(), program_name());
	while (std::getline(file, line)) {
		std::istringstream words(line);
		std::string name;
		uint64_t value;
		if (!(words >> name >> value))
			fail("%s: malformed line \"%s\"; remove the directory and load again", marker_.c_str(),
			     line.c_str());
		fields_[name] = value;
	}
	if (field("format") != format_)
		fail("%s has format %" PRIu64 " and this program reads %" PRIu64
		     "; remove it and load again",
		     directory_.c_str(), field("format"), format_);
	return true;
}

uint64_t Dataset::field(const char *name) const
{
	auto found = fields_.find(name);
	if (found == fields_.end())
		fail("%s lacks \"%s\"; remove the directory and load again", marker_.c_str(), name);
	return found->second;
}

void Dataset::need(const std::string &load_command)
{
	if (!read())
		fail("%s holds no %s data set; load one: %s", directory_.c_str(),
		     fs::exists(loading_) ? "complete" : program_name(), load_command.c_str());
}

std::string Dataset::begin_load()
{
	std::error_code error;
	fs::create_directories(directory_, error);
	if (error)
		fail_with(directory_, error);
	if (!fs::exists(loading_)) {
		bool empty = fs::is_empty(directory_, error);
		if (error)
			fail_with(directory_, error);
		if (!empty)
			fail("%s is not empty and holds no %s data set; name another directory with --data",
			     directory_.c_str(), program_name());
	}
	/* Never closed: the process holds the lock for its lifetime. */
	int lock = open(loading_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (lock < 0)
		fail("%s: %s", loading_.c_str(), strerror(errno));
	if (flock(lock, LOCK_EX | LOCK_NB) != 0)
		fail("%s is being loaded by another process", directory_.c_str());
	fs::remove_all(database_, error);
	if (error)
		fail_with(database_, error);
	doom(database_);
	return database_;
}

void Dataset::finish_load(const Fields &fields)
{
	std::string text = std::string(program_name()) + "\n";
	fields_ = fields;
	fields_["format"] = format_;
	for (const auto &[name, value] : fields_)
		text += name + " " + std::to_string(value) + "\n";
	write_whole(marker_, text);
	keep();
	std::error_code error;
	fs::remove(loading_, error);
	if (error)
		fail_with(loading_, error);
}

void Dataset::clone(const std::string &into) const
{
	std::error_code error;
	fs::create_directory(into, error);
	if (error)
		fail_with(into, error);
	fs::directory_iterator at(database_, error);
	if (error)
		fail_with(database_, error);
	for (const fs::directory_entry &entry : at) {
		fs::path copy = into / entry.path().filename();
		if (entry.path().extension() == ".sst") {
			/* Fails across file systems and, on some systems, between users. */
			fs::create_hard_link(entry.path(), copy, error);
			if (!error)
				continue;
		}
		copy_file(entry.path().string(), copy.string());
	}
}

uint64_t Dataset::bytes() const
{
	uint64_t sum = 0;
	std::error_code error;
	for (fs::directory_iterator at(database_, error), end; !error && at != end; at.increment(error))
		if (at->path().extension() == ".sst")
			sum += at->file_size();
	if (error)
		fail_with(database_, error);
	return sum;
}

} // namespace engine
