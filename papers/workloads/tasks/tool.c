/* Runs a system program. */
#include "tasks.h"

#include <sys/prctl.h>
#include <sys/wait.h>

enum { NOT_FOUND = 127 };

void tool_check(const char *name, const char *package)
{
	const char *path = getenv("PATH");
	char *list = strdup(path ? path : "/usr/bin:/bin"), *rest = list, *directory;
	bool found = strchr(name, '/') && access(name, X_OK) == 0;

	while (!found && !strchr(name, '/') && (directory = strsep(&rest, ":"))) {
		char *candidate;
		if (asprintf(&candidate, "%s/%s", *directory ? directory : ".", name) < 0)
			die("out of memory");
		found = access(candidate, X_OK) == 0;
		free(candidate);
	}
	free(list);
	if (!found)
		die("%s is not installed: apt-get install %s", name, package);
}

/* The program that this process runs now; 0: none. */
static pid_t running;

/* Starts a program with `output` as standard output. */
static pid_t start(char *const words[], int output)
{
	pid_t parent = getpid(), child = start_child(words[0]);

	if (child > 0) {
		__atomic_store_n(&running, child, __ATOMIC_RELAXED);
		return child;
	}
	sigset_t ending = ending_signals();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_FAILED);
	sigprocmask(SIG_UNBLOCK, &ending, NULL);
	dup2(output, STDOUT_FILENO);
	execvp(words[0], words);
	_exit(NOT_FOUND);
}

static int status_of(pid_t child, const char *name)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			die("cannot wait for %s: %s", name, strerror(errno));
	__atomic_store_n(&running, 0, __ATOMIC_RELAXED);
	stand_back(); /* tool_kill() may have ended it */
	if (!WIFEXITED(status))
		die("%s was ended by signal %d", name, WTERMSIG(status));
	if (WEXITSTATUS(status) == NOT_FOUND)
		die("%s cannot be executed", name);
	return WEXITSTATUS(status);
}

void tool_kill(void)
{
	pid_t child = __atomic_load_n(&running, __ATOMIC_RELAXED);
	if (child > 0)
		kill(child, SIGKILL);
}

int tool_run(char *const words[])
{
	static int nowhere = -1;

	if (nowhere < 0 && (nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC)) < 0)
		die("cannot open /dev/null: %s", strerror(errno));
	return status_of(start(words, nowhere), words[0]);
}

uint64_t tool_lines(char *const words[])
{
	char bytes[1 << 16];
	uint64_t lines = 0;
	ssize_t count;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0)
		die("cannot make a pipe: %s", strerror(errno));
	pid_t child = start(words, ends[1]);
	close(ends[1]);
	while ((count = read(ends[0], bytes, sizeof bytes)) > 0)
		for (ssize_t i = 0; i < count; i++)
			lines += bytes[i] == '\n';
	close(ends[0]);
	int status = status_of(child, words[0]);
	if (status != 0)
		die("%s ended with status %d", words[0], status);
	return lines;
}
