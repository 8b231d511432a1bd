# Shells that take no contended lock, with short-lived children that do.
start --bound 4
load shells 6 20 300
sleep 2
echo "@inherited $(metric inherited_total)"
tasks 0 childless
show metrics $METRICS
state end
show output /tmp/output
