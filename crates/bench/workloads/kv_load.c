/*
 * A load generator for memcached and Redis: one thread with many connections on a Unix socket, and
 * several requests in flight on each.
 *
 * It must leave the processors to the server. So requests and expected answers are prepared before
 * the measurement, and checking an answer costs one comparison. This works because a value is a
 * function of its key, and a set writes the value that is already stored. Nine requests of ten are
 * gets.
 */
#include "measure.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { VALUE_BYTES = 64, BATCHES = 512, GETS_OF_TEN = 9, REQUEST_BYTES = 160 };

/* Requests that are sent together, and the expected answer. */
struct batch {
	char *request, *answer;
	size_t request_bytes, answer_bytes;
};

struct connection {
	int fd;
	const struct batch *batch;
	size_t received; /* bytes of the answer, all as expected */
};

enum protocol { PROTOCOL_MEMCACHED, PROTOCOL_REDIS };

static enum protocol protocol;
static const char *path;
static long keys = 10000;
static struct batch batches[BATCHES];

static void append(char **at, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(char **at, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	*at += vsprintf(*at, format, args);
	va_end(args);
}

static void add_request(struct batch *batch, uint64_t key, bool is_get)
{
	char name[16], value[VALUE_BYTES + 1];
	char *request = batch->request + batch->request_bytes,
	     *answer = batch->answer + batch->answer_bytes;

	snprintf(name, sizeof name, "key-%08" PRIu64, key);
	for (int i = 0; i < VALUE_BYTES; i += 16)
		sprintf(value + i, "%016" PRIx64, random_next(&key));
	switch (protocol) {
	case PROTOCOL_MEMCACHED:
		if (is_get) {
			append(&request, "get %s\r\n", name);
			append(&answer, "VALUE %s 0 %d\r\n%s\r\nEND\r\n", name, VALUE_BYTES, value);
		} else {
			append(&request, "set %s 0 0 %d\r\n%s\r\n", name, VALUE_BYTES, value);
			append(&answer, "STORED\r\n");
		}
		break;
	case PROTOCOL_REDIS:
		if (is_get) {
			append(&request, "*2\r\n$3\r\nGET\r\n$%zu\r\n%s\r\n", strlen(name), name);
			append(&answer, "$%d\r\n%s\r\n", VALUE_BYTES, value);
		} else {
			append(&request, "*3\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%d\r\n%s\r\n", strlen(name), name,
			       VALUE_BYTES, value);
			append(&answer, "+OK\r\n");
		}
		break;
	}
	batch->request_bytes = (size_t)(request - batch->request);
	batch->answer_bytes = (size_t)(answer - batch->answer);
}

static struct batch make_batch(long requests)
{
	struct batch batch = { 0 };
	batch.request = line_alloc((size_t)requests, REQUEST_BYTES);
	batch.answer = line_alloc((size_t)requests, REQUEST_BYTES);
	return batch;
}

static int connect_server(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	if (strlen(path) >= sizeof address.sun_path)
		die("%s: too long for a socket", path);
	strcpy(address.sun_path, path);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address))
		die("%s: %s", path, strerror(errno));
	return fd;
}

static void send_batch(struct connection *connection, const struct batch *batch)
{
	connection->batch = batch;
	connection->received = 0;
	/* A batch is smaller than a socket's buffer, which is empty once every request is answered. */
	if (send(connection->fd, batch->request, batch->request_bytes, MSG_NOSIGNAL) !=
	    (ssize_t)batch->request_bytes)
		die("the server rejects a request: %s", strerror(errno));
}

/* Reads the available bytes. Returns true once the whole batch is answered. */
static bool receive(struct connection *connection)
{
	static char buffer[1 << 16];
	const struct batch *batch = connection->batch;
	ssize_t bytes = recv(connection->fd, buffer, sizeof buffer, 0);

	if (bytes <= 0)
		die("the server closed a connection: %s", bytes ? strerror(errno) : "end of file");
	if ((size_t)bytes > batch->answer_bytes - connection->received ||
	    memcmp(buffer, batch->answer + connection->received, (size_t)bytes))
		die("wrong answer: %.*s", (int)bytes, buffer);
	connection->received += (size_t)bytes;
	return connection->received == batch->answer_bytes;
}

/* Stores every key, in small batches. */
static void store_keys(void)
{
	struct connection connection = { .fd = connect_server() };

	for (uint64_t key = 0; key < (uint64_t)keys; key += 10) {
		struct batch batch = make_batch(10);
		for (uint64_t i = key; i < key + 10 && i < (uint64_t)keys; i++)
			add_request(&batch, i, false);
		send_batch(&connection, &batch);
		while (!receive(&connection))
			;
		free(batch.request);
		free(batch.answer);
	}
	close(connection.fd);
}

int main(int argc, char **argv)
{
	static const char *const protocols[] = { "memcached", "redis" };
	const char *protocol_name = "memcached";
	long count = 32, depth = 16;
	double seconds = 2, warm_up = 0.5;
	const struct option_row rows[] = {
		{ "protocol", "NAME", OPTION_TEXT, &protocol_name, 0, 0, "memcached or redis" },
		{ "socket", "PATH", OPTION_TEXT, &path, 0, 0, "Unix socket of the server" },
		{ "connections", "N", OPTION_COUNT, &count, 1, 10000, "number of connections" },
		{ "keys", "N", OPTION_COUNT, &keys, 1, 1000000, "number of keys" },
		{ "depth", "N", OPTION_COUNT, &depth, 1, 100, "requests in flight on each" },
		{ "warm-up", "S", OPTION_REAL, &warm_up, 0, 3600, "warm-up time in seconds" },
		{ "seconds", "S", OPTION_REAL, &seconds, 0.01, 3600, "length of the measured window" },
	};
	const struct program program = { "kv_load",
					 "Loads memcached or Redis, and checks every answer.", rows,
					 sizeof rows / sizeof *rows };
	parse_options(&program, argc, argv);
	protocol = (enum protocol)parse_choice(&program, "protocol", protocol_name, protocols, 2);
	if (!path)
		usage_error(&program, "--socket PATH is required");

	uint64_t random = 1;
	for (int b = 0; b < BATCHES; b++) {
		batches[b] = make_batch(depth);
		for (long i = 0; i < depth; i++)
			add_request(&batches[b], random_below(&random, (uint64_t)keys),
				    random_below(&random, 10) < GETS_OF_TEN);
	}
	store_keys();

	int epoll = epoll_create1(0);
	struct connection *connections = line_alloc((size_t)count, sizeof *connections);
	for (long i = 0; i < count; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data = { .ptr = &connections[i] } };
		connections[i].fd = connect_server();
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].fd, &event))
			die("epoll: %s", strerror(errno));
		send_batch(&connections[i], &batches[random_below(&random, BATCHES)]);
	}

	uint64_t start = now_ns() + (uint64_t)(warm_up * 1e9), end = start + (uint64_t)(seconds * 1e9);
	uint64_t answered = 0, now;
	bool measures = false;
	do {
		struct epoll_event events[64];
		int ready = epoll_wait(epoll, events, 64, 20000);

		if (ready <= 0)
			die("no answer within 20 seconds");
		now = now_ns();
		/* The window opens on time, even if the server pauses then: its pause counts. */
		if (!measures && now >= start) {
			measures = true;
			answered = 0;
		}
		for (int i = 0; i < ready; i++) {
			struct connection *connection = events[i].data.ptr;
			if (receive(connection)) {
				answered += (uint64_t)depth;
				send_batch(connection, &batches[random_below(&random, BATCHES)]);
			}
		}
	} while (now < end);
	printf("rate %.1f requests/s\n", (double)answered / ((double)(now - start) / 1e9));
	return EXIT_SUCCESS;
}
