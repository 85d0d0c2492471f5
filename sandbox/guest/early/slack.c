//go:build cgo
// The Go runtime wakes a thread every 20 us while a process is not quite idle, which is most of what many idle
// guests would cost. Timers of the guest need no such precision; its threads inherit this from the first one.
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

__attribute__((constructor)) static void slack(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "guest") == 0)
		prctl(PR_SET_TIMERSLACK, 300000, 0, 0, 0);
}
