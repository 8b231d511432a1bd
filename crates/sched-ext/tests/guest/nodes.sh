# Loads on two memory nodes, with a set that covers one node, then both.
round() {
	start --bound $2
	state loaded
	echo "@nodes $(metric nodes)"
	load spin 12 300 >/tmp/spin &
	loads=$!
	load files 8 300 >/tmp/files &
	loads="$loads $!"
	load spin 2 300 f >/tmp/near &
	loads="$loads $!"
	load spin 2 300 f0 >/tmp/far &
	loads="$loads $!"
	load spin 1 300 20 >/tmp/one &
	loads="$loads $!"
	tasks 8 $1.found
	observe $1
	# shellcheck disable=SC2086 # one argument a process
	kill $loads
	# shellcheck disable=SC2086
	wait $loads
	for name in files spin near far one; do show $1.$name /tmp/$name; done
	counts="$(metric node_crossings_total) $(metric slices_total) $(metric borrowed_cores_total)"
	echo "@$1.crossings $counts"
	state $1.end
	kill -INT $SCHEDULER
	wait $SCHEDULER
}
round whole 4
round all 8

# The second node's processors go offline and online.
start --bound 2
for cpu in 4 5 6 7; do echo 0 >/sys/devices/system/cpu/cpu$cpu/online; done
cores 4 gone
echo "@gone.nodes $(metric nodes)"
load spin 8 4 >/tmp/spin
show gone.spin /tmp/spin
for cpu in 4 5 6 7; do echo 1 >/sys/devices/system/cpu/cpu$cpu/online; done
cores 8 back
echo "@back.nodes $(metric nodes)"
load spin 8 4 >/tmp/spin
show back.spin /tmp/spin
state end
show output /tmp/output
