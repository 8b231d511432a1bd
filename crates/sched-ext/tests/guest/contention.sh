state before

# A set of three cores: lock-intensive tasks among others, some of which are pinned.
start --bound 3
state loaded
echo "@privilege $(sed -n 's/^CapPrm:[[:space:]]*//p' /proc/$SCHEDULER/status)"
tasks 0 quiet
load files 8 300 >/tmp/files &
loads="$loads $!"
load spin 4 300 >/tmp/spin &
loads="$loads $!"
load spin 1 300 1 >/tmp/first &
loads="$loads $!"
load spin 1 300 80 >/tmp/last &
loads="$loads $!"
load files 2 300 c0 >/tmp/apart &
loads="$loads $!"
tasks 8 found
observe set
show metrics $METRICS
# shellcheck disable=SC2086 # one argument a process
kill $loads
# shellcheck disable=SC2086
wait $loads
for name in files spin first last apart; do show $name /tmp/$name; done
kill -INT $SCHEDULER
wait $SCHEDULER
echo "@status $?"
becomes disabled ended

# A set whose size is searched for. The loads run until the bound moves, since the guest may be
# slow.
start
load files 8 300 >/tmp/many &
tasks 8 many
moves 0 many
kill $!
tasks 0 drained
# The kernel traces a wait for a spin lock only if at least three tasks contend for it.
load files 4 300 >/tmp/four &
tasks 4 four
moves $(metric bound_changes_total) four
kill $!
tasks 0 drained.again

# The loader is stopped.
kill -STOP $SCHEDULER
load files 8 5 >/tmp/stalled
load fork 200 && echo "@stalled.forked yes"
show stalled /tmp/stalled
state stalled
kill -CONT $SCHEDULER
sleep 2
tasks 0 resumed
state awake

# A processor goes offline and online.
echo 0 >/sys/devices/system/cpu/cpu7/online
cores 7 offline
echo 1 >/sys/devices/system/cpu/cpu7/online
cores 8 online

kill -KILL $SCHEDULER
becomes disabled killed
show output /tmp/output
