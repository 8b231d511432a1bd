# Runs benchmarks without contention under both schedulers, alternating for $ROUNDS rounds.
calls=0
# Runs one benchmark, which adds a line to the output of instructions.c.
call() {
	load $2 $3 >/tmp/time
	calls=$((calls + 1))
	echo "@$1.$2 $calls $(cat /tmp/time)"
}
measure() {
	state $1
	call $1 exec 500
	call $1 pipe 10000
}
call warm exec 300
call warm pipe 3000
for round in $(seq $ROUNDS); do
	measure default.$round
	start
	call warm exec 100
	measure unconvoy.$round
	kill -INT $SCHEDULER
	wait $SCHEDULER
done
show metrics $METRICS
show output /tmp/output
