#!/bin/sh
# OpenJDK: THREADS threads pass jobs through a bounded queue and count in a synchronized map.
. "$(dirname "$0")/../program.sh"

here=$(dirname "$0")
make_java() { javac -d "$1" "$here/Jobs.java"; }

# Do not write a file for monitoring tools to /tmp.
measured java -XX:-UsePerfData -Xmx256m -cp "$(prepared java)" Jobs "$threads" "$seconds"
