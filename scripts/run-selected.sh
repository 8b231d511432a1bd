#!/bin/sh
# Runs a test program if its package is among the names in $ONLY (default: all) and not among those
# in $EXCEPT. The Makefile makes this cargo's runner, so that `cargo test` builds one selection of
# packages and runs the tests of some.
set -eu
case " ${EXCEPT:-} " in
*" $CARGO_PKG_NAME "*) exit ;;
esac
case " ${ONLY:-$CARGO_PKG_NAME} " in
*" $CARGO_PKG_NAME "*) exec "$@" ;;
esac
