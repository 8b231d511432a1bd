/*
 * SQLite under many threads, each with a database of its own in memory, as in a server that keeps
 * one for each session. The threads share nothing but what the library shares between its
 * connections.
 *
 * An operation compiles a query, runs it and verifies its row, as a program without a cache of
 * statements does. Debian builds the library without look-aside memory, so every allocation of a
 * connection goes through the library's allocator.
 */
#include "measure.h"

#include <sqlite3.h>

struct worker {
	struct window *window;
	struct counter *counter;
	uint64_t random;
	long rows;
	sqlite3 *db;
	pthread_t thread;
};

static void check(const struct worker *self, int code, int expected)
{
	if (code != expected)
		die("sqlite_bench: %s", sqlite3_errmsg(self->db));
}

static sqlite3_stmt *prepare(struct worker *self, const char *query)
{
	sqlite3_stmt *statement;
	check(self, sqlite3_prepare_v2(self->db, query, -1, &statement, NULL), SQLITE_OK);
	return statement;
}

/* The text that a row must have. */
static void text_of(sqlite3_int64 row, char text[32])
{
	uint64_t state = (uint64_t)row;
	snprintf(text, 32, "%020" PRIu64, random_next(&state));
}

static void fill(struct worker *self)
{
	const char *create = "CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT); BEGIN";
	char text[32];

	/* No other thread uses the connection, so it needs no mutex. */
	int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
	check(self, sqlite3_open_v2(":memory:", &self->db, flags, NULL), SQLITE_OK);
	check(self, sqlite3_exec(self->db, create, NULL, NULL, NULL), SQLITE_OK);
	sqlite3_stmt *insert = prepare(self, "INSERT INTO item VALUES(?, ?)");
	for (sqlite3_int64 row = 0; row < self->rows; row++) {
		text_of(row, text);
		sqlite3_bind_int64(insert, 1, row);
		sqlite3_bind_text(insert, 2, text, -1, SQLITE_TRANSIENT);
		check(self, sqlite3_step(insert), SQLITE_DONE);
		sqlite3_reset(insert);
	}
	sqlite3_finalize(insert);
	check(self, sqlite3_exec(self->db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
}

static void query_one(struct worker *self)
{
	sqlite3_int64 row = (sqlite3_int64)random_below(&self->random, (uint64_t)self->rows);
	char text[32];

	text_of(row, text);
	sqlite3_stmt *query = prepare(self, "SELECT name FROM item WHERE id = ?");
	sqlite3_bind_int64(query, 1, row);
	check(self, sqlite3_step(query), SQLITE_ROW);
	if (strcmp((const char *)sqlite3_column_text(query, 0), text) != 0)
		die_inconsistent("sqlite_bench: row %lld has a wrong text", row);
	sqlite3_finalize(query);
}

static void *worker_main(void *argument)
{
	struct worker *self = argument;

	fill(self);
	pthread_barrier_wait(&self->window->start_barrier);
	while (window_phase(self->window) != PHASE_STOP) {
		query_one(self);
		counter_increment(self->counter);
	}
	check(self, sqlite3_close(self->db), SQLITE_OK);
	return NULL;
}

int main(int argc, char **argv)
{
	long threads = 2, rows = 1000;
	double seconds = 2;
	const struct option_row options[] = {
		{ "threads", "N", OPTION_COUNT, &threads, 1, 4096, "threads that query" },
		{ "seconds", "S", OPTION_REAL, &seconds, 0.01, 3600, "length of the measured window" },
		{ "rows", "N", OPTION_COUNT, &rows, 1, 1e7, "rows of each thread's table" },
	};
	const struct program program = { "sqlite_bench",
					 "Threads query SQLite databases of their own.", options,
					 sizeof options / sizeof *options };
	parse_options(&program, argc, argv);

	struct window *window = line_alloc(1, sizeof *window);
	window_init(window, threads, threads);
	struct worker *workers = line_alloc((size_t)threads, sizeof *workers);
	for (long i = 0; i < threads; i++) {
		workers[i].window = window;
		workers[i].counter = &window->counters[i];
		workers[i].random = (uint64_t)i;
		workers[i].rows = rows;
		workers[i].thread = start_thread(worker_main, &workers[i]);
	}
	window_run(window, seconds);
	for (long i = 0; i < threads; i++)
		pthread_join(workers[i].thread, NULL);
	/* All connections are closed: any memory in use would be an error of the statistics. */
	if (sqlite3_memory_used() != 0)
		die_inconsistent("sqlite_bench: %lld bytes in use at the end", sqlite3_memory_used());
	window_report(window);
	printf("highwater %lld\n", sqlite3_memory_highwater(0));
	return EXIT_SUCCESS;
}
