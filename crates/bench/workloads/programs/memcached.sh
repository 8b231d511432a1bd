#!/bin/sh
# memcached with THREADS worker threads and four connections per thread, nine gets to one set.
# KEYS=1 makes all threads use one item.
. "$(dirname "$0")/../program.sh"

start memcached -u root -s "$dir/socket" -t "$threads" -m 256 -c 4096
await test -S "$dir/socket"
connections=$((threads * 4 > 32 ? threads * 4 : 32))
"$workloads/kv_load" --protocol memcached --socket "$dir/socket" --connections "$connections" \
	--keys "${KEYS:-10000}" --depth 16 --seconds "$seconds"
stop
