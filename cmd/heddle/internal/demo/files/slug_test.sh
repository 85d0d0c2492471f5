#!/bin/sh
# Exits 1 when slug.sh does not do what it should.
status=0

check() {
	got=$(sh ./slug.sh "$1")
	if [ "$got" = "$2" ]; then
		echo "ok    '$1' is '$got'"
	else
		echo "FAIL  '$1' is '$got', want '$2'"
		status=1
	fi
}

check 'one' 'one'
check 'two words' 'two-words'
check 'Hello World' 'hello-world'
check 'far   apart' 'far-apart'
exit $status
