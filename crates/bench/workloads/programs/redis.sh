#!/bin/sh
# redis-server with THREADS input/output threads, which also read, and requests in batches of 16.
. "$(dirname "$0")/../program.sh"

start redis-server --port 0 --unixsocket "$dir/socket" --io-threads "$threads" \
	--io-threads-do-reads yes --save '' --appendonly no --dir "$dir"
await redis-cli -s "$dir/socket" ping
# Redis uses the threads once two clients per thread wait.
connections=$((threads * 4 > 64 ? threads * 4 : 64))
"$workloads/kv_load" --protocol redis --socket "$dir/socket" --connections "$connections" \
	--depth 16 --seconds "$seconds"
stop
