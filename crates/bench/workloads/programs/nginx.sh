#!/bin/sh
# nginx: one worker process that sends files from a pool of THREADS threads, under wrk.
. "$(dirname "$0")/../program.sh"

mkdir "$dir/root"
head -c 65536 /dev/zero | tr '\0' x >"$dir/root/file"
# A free port from the kernel, because wrk does not support Unix sockets.
port=$(/usr/bin/python3 -I -c '
import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])')
cat >"$dir/conf" <<EOF
daemon off;
user $(id -un);
pid $dir/pid;
error_log stderr warn;
worker_processes 1;
thread_pool default threads=$threads;
events { worker_connections 1024; }
http {
	access_log off;
	aio threads;
	sendfile on;
	client_body_temp_path $dir/body;
	proxy_temp_path $dir/proxy;
	fastcgi_temp_path $dir/fastcgi;
	uwsgi_temp_path $dir/uwsgi;
	scgi_temp_path $dir/scgi;
	keepalive_requests 1000000000;
	server {
		listen 127.0.0.1:$port;
		root $dir/root;
	}
}
EOF
start nginx -c "$dir/conf" -e stderr
await curl -fsS -o "$dir/got" "http://127.0.0.1:$port/file"
cmp "$dir/got" "$dir/root/file" || fail "the server sends wrong data"
connections=$((threads * 4 > 32 ? threads * 4 : 32))
for time in 1 "$seconds"; do
	wrk -t 1 -c "$connections" -d "${time}s" "http://127.0.0.1:$port/file" >"$dir/client" 2>&1 ||
		fail "$(cat "$dir/client")"
done
stop
! grep -E 'Non-2xx|Socket errors' "$dir/client" >&2 || fail "wrk reported errors"
awk '$1 == "Requests/sec:" { print "rate", $2, "requests/s"; found = 1 }
	END { exit !found }' "$dir/client" || fail "no rate"
