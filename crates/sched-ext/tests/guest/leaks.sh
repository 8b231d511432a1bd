start
# Prints the size of the kernel's slabs in kB, without those of vmap_area: the kernel frees the
# areas of ended threads' stacks late, once thousands have accumulated.
slab() {
	awk 'FNR > 2 && $1 != "vmap_area" { pages += $6 * $15 } END { print pages * 4 }' /proc/slabinfo
}
memory() {
	sync
	echo 3 >/proc/sys/vm/drop_caches
	sleep 1
	kernel=$(sed -n 's/^\(Percpu\|VmallocUsed\): *\([0-9]*\) kB/\2/p' /proc/meminfo | tr '\n' ' ')
	loader=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' /proc/$SCHEDULER/status)
	echo "@$1 $(slab) $kernel $loader"
}
# 2,500 tasks, of which 500 are lock-intensive or children of lock-intensive tasks.
forks() {
	begun=
	for _ in 1 2 3 4; do
		load fork 500 &
		begun="$begun $!"
	done
	# shellcheck disable=SC2086 # one argument a process
	wait $begun
	load breed 4 125
	tasks 0 tasks.$1
	memory memory.$1
}
for round in 0 1 2 3 4; do forks $round; done
show metrics $METRICS
state end
kill -INT $SCHEDULER
wait $SCHEDULER
echo "@status $?"
becomes disabled ended
show output /tmp/output
