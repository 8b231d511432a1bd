# Tasks whose mask has offline processors and, of the others, only those of the set.
start --bound 2
state loaded
load files 8 300 >/tmp/files &
loads=$!
# While lock-intensive tasks exist, the loader restarts before the processor is gone.
for cpu in 7 6 5 4; do
	tasks 6 found.$cpu
	echo 0 >/sys/devices/system/cpu/cpu$cpu/online
	cores $cpu offline.$cpu
done
tasks 6 found
load spin 2 10 f3 >/tmp/masked
kill $loads
wait $loads
for name in files masked; do show $name /tmp/$name; done
state end
show output /tmp/output
