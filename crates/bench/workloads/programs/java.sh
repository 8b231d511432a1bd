#!/bin/sh
# OpenJDK: THREADS threads pass jobs through one bounded queue and count in one synchronized map.
. "$(dirname "$0")/../program.sh"

here=$(dirname "$0")
make_java() { javac -d "$1" "$here/Jobs.java"; }

# No file for monitoring tools in /tmp.
measured java -XX:-UsePerfData -Xmx256m -cp "$(prepared java)" Jobs "$threads" "$seconds"
