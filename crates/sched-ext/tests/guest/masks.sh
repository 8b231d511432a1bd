# Tasks whose mask has offline processors and, of the others, only those of the set.
for cpu in 4 5 6 7; do echo 0 >/sys/devices/system/cpu/cpu$cpu/online; done
start --bound 2
state loaded
load files 8 300 >/tmp/files &
loads=$!
tasks 6 found
load spin 2 10 f3 >/tmp/masked
kill $loads
wait $loads
for name in files masked; do show $name /tmp/$name; done
state end
show output /tmp/output
