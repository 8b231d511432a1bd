# As many lock-intensive tasks as cores in the set, and more ordinary tasks than other cores.
start --bound 4
state loaded
load files 4 300 >/tmp/files &
loads=$!
tasks 4 found
# Two of the tasks found may be shells; the last threads are recognized within a few slices.
sleep 2
load spin 12 300 >/tmp/spin &
loads="$loads $!"
observe busy
# shellcheck disable=SC2086 # one argument a process
kill $loads
# shellcheck disable=SC2086
wait $loads
for name in files spin; do show $name /tmp/$name; done
state end
show output /tmp/output
