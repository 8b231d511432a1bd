#!/bin/sh
# The papers' figures on simulated machines, at full size: drawings and records go to .figures/ (or to $1). Hours on a small machine; figures that are there are kept.
set -eu

out=${1:-.figures}
unconvoy=target/release/unconvoy
mkdir -p "$out"
for figure in $("$unconvoy" sim --help | sed -n '/^Figures:/,$s/^  \([a-z]*-\{0,1\}[0-9]*\)  .*/\1/p'); do
	grep -qs '"complete": *true' "$out/sim-$figure.json" || "$unconvoy" sim --figure "$figure" --plot "$out/sim-$figure"
done
