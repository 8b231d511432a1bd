#!/bin/sh
# MariaDB under sysbench: THREADS connections, and so as many threads, read and write rows of four
# tables.
. "$(dirname "$0")/../program.sh"

# Do not wait for a disk, and ignore the user's configuration.
serve="mariadbd --no-defaults --user=root --skip-networking --skip-log-bin
	--innodb-buffer-pool-size=256M --innodb-log-file-size=32M --innodb-flush-log-at-trx-commit=0
	--innodb-doublewrite=0 --innodb-flush-method=fsync --innodb-fast-shutdown=2"
# bench THREADS OPTIONS... VERB
bench() {
	n=$1
	shift
	sysbench oltp_read_write --db-driver=mysql --mysql-socket="$dir/socket" --mysql-user=root \
		--mysql-db=sbtest --tables=4 --table-size=10000 --threads="$n" --rand-seed=1 "$@"
}

make_mariadb() {
	mariadb-install-db --no-defaults --user=root --auth-root-authentication-method=normal \
		--skip-test-db --datadir="$1" || return
	# shellcheck disable=SC2086 # words
	$serve --datadir="$1" --socket="$dir/socket" --pid-file="$dir/pid" &
	echo $! >"$dir/preparing"
	tries=0
	until mariadb-admin --no-defaults -S "$dir/socket" -u root ping; do
		tries=$((tries + 1))
		[ "$tries" -lt 300 ] || return 1
		sleep 0.1
	done
	mariadb-admin --no-defaults -S "$dir/socket" -u root create sbtest && bench 1 prepare || return
	mariadb-admin --no-defaults -S "$dir/socket" -u root shutdown && wait && rm "$dir/preparing"
}

cp -r "$(prepared mariadb)" "$dir/data"
# shellcheck disable=SC2086
start $serve --datadir="$dir/data" --socket="$dir/socket" --pid-file="$dir/pid"
await mariadb-admin --no-defaults -S "$dir/socket" -u root ping
bench "$threads" --time=1 run >"$dir/client" 2>&1 || fail "$(cat "$dir/client")"
bench "$threads" --time="$seconds" run >"$dir/client" 2>&1 || fail "$(cat "$dir/client")"
stop
# queries:                             25320  (25297.63 per sec.)
awk '$1 == "queries:" { sub(/\(/, "", $3); print "rate", $3, "queries/s"; found = 1 }
	END { exit !found }' "$dir/client" || fail "no rate"
