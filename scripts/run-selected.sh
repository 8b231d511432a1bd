#!/bin/sh
# Runs a test program if its package is among the names in $ONLY (default: all) and not among those
# in $EXCEPT. The Makefile makes this cargo's runner, so that `cargo test` builds one selection of
# packages and runs the tests of some. A program that has not ended after $LIMIT seconds (default:
# 2400) prints its stacks and ends.
set -eu
case " ${EXCEPT:-} " in
*" $CARGO_PKG_NAME "*) exit ;;
esac
case " ${ONLY:-$CARGO_PKG_NAME} " in
*" $CARGO_PKG_NAME "*) ;;
*) exit ;;
esac

# Each test has a time-out of its own; this one is for errors of the tests. The watcher is a
# grandchild, so that the program does not find an unknown child. It opens the program's output only
# to write: rustdoc waits until nobody has the output open.
(
	{
		timeout "${LIMIT:-2400}" tail --pid=$$ -s .1 -f /dev/null || {
			echo "$1 does not end"
			gdb -p $$ -batch -ex 'thread apply all bt'
			kill -ABRT $$
		} >/proc/$$/fd/2
	} </dev/null >/dev/null 2>&1 &
)
exec "$@"
