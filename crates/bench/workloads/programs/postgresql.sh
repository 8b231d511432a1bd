#!/bin/sh
# PostgreSQL under pgbench: THREADS connections, and so as many processes, run TPC-B transactions.
. "$(dirname "$0")/../program.sh"

for bin in /usr/lib/postgresql/*/bin; do PATH=$PATH:$bin; done
# PostgreSQL refuses to run as root.
as=
if [ "$(id -u)" = 0 ]; then
	as='setpriv --reuid=postgres --regid=postgres --clear-groups'
fi
settings='-c listen_addresses= -c shared_buffers=256MB -c fsync=off -c synchronous_commit=off
	-c full_page_writes=off -c autovacuum=off'

make_postgresql() {
	mkdir "$1" && { [ -z "$as" ] || chown postgres "$1"; } || return
	$as initdb -D "$1" -U postgres -A trust --no-sync || return
	# shellcheck disable=SC2086 # words
	$as postgres -D "$1" -k "$dir" $settings &
	echo $! >"$dir/preparing"
	tries=0
	until pg_isready -h "$dir"; do
		tries=$((tries + 1))
		[ "$tries" -lt 300 ] || return 1
		sleep 0.1
	done
	# Every transaction on a branch writes the branch's row. Ten branches keep these rows from
	# dominating the waits.
	pgbench -h "$dir" -U postgres -i -q -s 10 postgres || return
	kill -INT "$(head -n 1 "$1/postmaster.pid")" && wait && rm "$dir/preparing"
}

# The server creates its socket in this directory.
[ -z "$as" ] || chown postgres "$dir"
cp -a "$(prepared postgresql)" "$dir/data"
# shellcheck disable=SC2086
start $as postgres -D "$dir/data" -k "$dir" $settings
await pg_isready -h "$dir"
for time in 1 "$seconds"; do
	pgbench -h "$dir" -U postgres -n -M prepared -c "$threads" -j 1 -T "$time" postgres \
		>"$dir/client" 2>&1 || fail "$(cat "$dir/client")"
done
stop INT
# tps = 8533.512 (without initial connection time)
awk '$1 == "tps" { print "rate", $3, "transactions/s"; found = 1 }
	END { exit !found }' "$dir/client" || fail "no rate"
