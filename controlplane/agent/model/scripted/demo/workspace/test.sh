#!/bin/sh
# Checks sum.sh.
failed=0
check() {
  want=$1
  shift
  got=$(sh ./sum.sh "$@")
  if [ "$got" = "$want" ]; then
    echo "ok: the sum of '$*' is $want"
  else
    echo "FAILED: the sum of '$*' is $got, not $want"
    failed=1
  fi
}
check 0
check 6 1 2 3
check -5 -2 -3
[ "$failed" = 0 ] && echo "all tests passed"
exit "$failed"
