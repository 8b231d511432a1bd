# How long nobody's contention takes under the default scheduler and under this one, in turns. Under QEMU's -icount a nanosecond is an instruction.
measure() {
	state $1
	echo "@$1.exec $(load exec 500)"
	echo "@$1.pipe $(load pipe 10000)"
}
load exec 300 >/tmp/warm
load pipe 3000 >/tmp/warm
for round in 1 2 3 4 5; do
	measure default.$round
	start
	load exec 100 >/tmp/warm
	measure unconvoy.$round
	kill -INT $SCHEDULER
	wait $SCHEDULER
done
show metrics $METRICS
show said /tmp/said
