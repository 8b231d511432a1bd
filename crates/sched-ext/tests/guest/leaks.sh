start
memory() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	sleep 1
	echo "@$1 $(sed -n 's/^\(Slab\|Percpu\|VmallocUsed\): *\([0-9]*\) kB/\2/p' /proc/meminfo | tr '\n' ' ') $(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' /proc/$SCHEDULER/status)"
}
# 6,000 tasks, of which 1,000 are lock-intensive and children of such.
forks() {
	begun=
	for _ in 1 2 3 4; do
		load fork 1250 &
		begun="$begun $!"
	done
	# shellcheck disable=SC2086 # one argument a process
	wait $begun
	load breed 4 250
	tasks 0 $1
	memory memory.$1
}
# The kernel keeps some of what it needed once: the first time is for that.
forks before
forks after
show metrics $METRICS
state end
kill -INT $SCHEDULER
wait $SCHEDULER
echo "@status $?"
becomes disabled ended
show said /tmp/said
