# Shells, which want no lock themselves; their children do, and end soon.
start --bound 4
load shells 6 20 300
sleep 2
echo "@heirs $(metric heirs_total)"
tasks 0 childless
show metrics $METRICS
state end
show said /tmp/said
