# What is executed for nobody's contention under the default scheduler and under this one, in turns, as often as $ROUNDS says.
calls=0
# Each call is a line of what instructions.c counts.
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
show said /tmp/said
