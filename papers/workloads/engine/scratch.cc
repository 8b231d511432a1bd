#include "scratch.h"

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ending.h"

namespace fs = std::filesystem;

namespace engine {

namespace {

const char *name_of_program = "";
/*
 * An array and not a std::string, because a thread that ends the program may read it while another
 * is in exit().
 */
char doomed[4096];
std::atomic<bool> is_doomed{false}, ending{false};
/*
 * True while an unmarked directory may exist. A flag and not a mutex, because the mutexes of this
 * program are what the benchmark tests.
 */
std::atomic<bool> is_making{false};

std::string text_of(const char *format, va_list args)
{
	char text[1024];
	vsnprintf(text, sizeof text, format, args);
	return text;
}

std::string scratch_prefix() { return std::string("unconvoy-") + name_of_program + "-run."; }

/*
 * Locks the directory at `path` until this process or the descriptor ends; returns -1 on failure.
 */
int lock_directory(const std::string &path)
{
	int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
		/* Before the lock, another process may have removed the directory as stale. */
		struct stat locked, there;
		if (fstat(descriptor, &locked) == 0 && lstat(path.c_str(), &there) == 0 &&
		    locked.st_ino == there.st_ino && locked.st_dev == there.st_dev)
			return descriptor;
	}
	if (descriptor >= 0)
		close(descriptor);
	return -1;
}

void remove_stale(const std::string &parent)
{
	std::string prefix = scratch_prefix();
	std::error_code error;
	for (fs::directory_iterator at(parent, error), end; !error && at != end; at.increment(error)) {
		std::string name = at->path().filename().string();
		struct stat status;
		if (name.size() != prefix.size() + 6 || name.compare(0, prefix.size(), prefix) ||
		    lstat(at->path().c_str(), &status) != 0 || status.st_uid != geteuid())
			continue;
		int lock = lock_directory(at->path().string());
		if (lock < 0)
			continue;
		std::error_code ignored;
		fs::remove_all(at->path(), ignored);
		close(lock);
	}
}

} // namespace

void start_program(const char *name)
{
	name_of_program = name;
	hold_signals();
	clean_up_on_signals(remove_doomed);
}

const char *program_name() { return name_of_program; }

void fail(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	die("%s: %s", name_of_program, text_of(format, args).c_str());
}

void inconsistent(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	die_inconsistent("%s: %s", name_of_program, text_of(format, args).c_str());
}

void doom(const std::string &path)
{
	if (path.size() >= sizeof doomed)
		fail("%s: the name is too long", path.c_str());
	strcpy(doomed, path.c_str());
	is_doomed.store(true);
}

void keep() { is_doomed.store(false); }

void remove_doomed()
{
	if (ending.exchange(true))
		for (;;)
			pause();
	while (is_making.load())
		usleep(1000);
	/* The engine may still be writing: files created after the scan need another round. */
	std::error_code error;
	for (int round = 0; is_doomed.load() && round < 100; round++) {
		fs::remove_all(doomed, error);
		if (!error && !fs::exists(doomed, error))
			return;
	}
}

std::string make_scratch(const std::string &parent)
{
	remove_stale(parent);
	/*
	 * Another process may take the new directory for a stale one before it is locked: try
	 * again.
	 */
	for (int attempt = 0; attempt < 10; attempt++) {
		std::string path = parent + "/" + scratch_prefix() + "XXXXXX";
		is_making.store(true);
		bool made = mkdtemp(path.data());
		int error = errno;
		if (made)
			doom(path); /* not too long: it was made */
		is_making.store(false);
		if (!made)
			fail("cannot make a directory in %s: %s; name another one with --scratch",
			     parent.c_str(), strerror(error));
		if (lock_directory(path) >= 0)
			return path;
	}
	fail("cannot lock a directory in %s: %s; name another one with --scratch", parent.c_str(),
	     strerror(errno));
}

} // namespace engine
