state before

# A set of three cores: lock-intensive tasks among others, some of which may not run everywhere.
start --bound 3
state loaded
tasks 0 quiet
load files 8 12 >/tmp/files &
loads="$loads $!"
load spin 4 12 >/tmp/spin &
loads="$loads $!"
load spin 1 12 1 >/tmp/first &
loads="$loads $!"
load spin 1 12 80 >/tmp/last &
loads="$loads $!"
load files 2 12 c0 >/tmp/apart &
loads="$loads $!"
tasks 8 found
observe set
show metrics $METRICS
# shellcheck disable=SC2086 # one argument a process
wait $loads
for name in files spin first last apart; do show $name /tmp/$name; done
kill -INT $SCHEDULER
wait $SCHEDULER
echo "@status $?"
state ended

# A set of as many cores as are found to be good.
start
load files 8 10 >/tmp/many &
sleep 8
echo "@many.bound $(metric bound) $(metric bound_changes_total)"
wait $!
show many /tmp/many
tasks 0 drained
load files 2 8 >/tmp/pair &
sleep 6
tasks 2 pair
echo "@pair.bound $(metric bound) $(metric bound_changes_total)"
wait $!

# The user-space side stalls.
kill -STOP $SCHEDULER
load files 8 5 >/tmp/stalled
load fork 200 && echo "@stalled.forked yes"
show stalled /tmp/stalled
state stalled
kill -CONT $SCHEDULER
sleep 2
tasks 0 resumed
state awake

# A processor goes and comes back.
echo 0 >/sys/devices/system/cpu/cpu7/online
sleep 4
state offline
echo "@offline.cores $(metric cores)"
echo 1 >/sys/devices/system/cpu/cpu7/online
sleep 4
state online
echo "@online.cores $(metric cores)"

kill -KILL $SCHEDULER
sleep 1
state killed
show said /tmp/said
