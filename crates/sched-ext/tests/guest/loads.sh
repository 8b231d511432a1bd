# Runs each load on the kernel's own locks under both schedulers, alternating for $ROUNDS rounds of
# $SECONDS each.
mkdir -p /dev/shm
mount -t tmpfs shm /dev/shm
CURRENT=/sys/kernel/sched_ext/enable_seq

# Reports the active scheduler and the length of its output.
look() {
	state $1
	echo "@$1.loaded $(cat $CURRENT)"
	echo "@$1.slices $(metric slices_total 2>/dev/null)"
	echo "@$1.lines $(wc -l </tmp/output)"
}
# Runs a load, which prints when its measurement window opens and closes.
work() {
	name=$scheduler.$round.$1
	shift
	{
		UNCONVOY_WINDOW=1 /bin/tasks "$@" --tasks $(nproc) --seconds $SECONDS \
			--warm-up $WARM_UP 2>&1
		echo "status $?"
	} | while read -r first second; do
		case "$first $second" in
		"window open") look $name.open ;;
		"window closed") look $name.closed ;;
		*) echo "$first $second" ;;
		esac
	done >/tmp/account
	grep '^@' /tmp/account
	grep -v '^@' /tmp/account >/tmp/figures
	show $name /tmp/figures
	state $name.after
}
works() {
	work mmapbench mmapbench --megabytes $MMAP_MEGABYTES
	work sockbench sockbench
	work postmark-few postmark --files $POSTMARK_FEW
	work postmark-many postmark --files $POSTMARK_MANY
	work find find --files $FIND_FILES
	work grep grep --megabytes $GREP_MEGABYTES
	if command -v cc >/dev/null; then
		work compile compile --sources 8
		echo "@compiler yes"
	else
		echo "@compiler none"
	fi
}
for round in $(seq $ROUNDS); do
	: >/tmp/output
	rm -f $METRICS
	scheduler=default
	works
	start --monitor
	scheduler=unconvoy
	works
	kill -INT $SCHEDULER
	wait $SCHEDULER
	echo "@unconvoy.$round.status $?"
	show unconvoy.$round.output /tmp/output
	becomes disabled unconvoy.$round.ended
done
