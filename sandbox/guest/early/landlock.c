//go:build cgo
// Puts a guest that is not in namespaces into the Landlock domain that its owner made the rules of, without any
// capability. Must happen while the process has one thread: the rules bind the calling thread and its children.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RULES 5

static void stop(const char *what)
{
	dprintf(2, "heddle-guest: %s: %s\n", what, strerror(errno));
	_exit(81);
}

__attribute__((constructor)) static void landlock(int argc, char **argv)
{
	struct __user_cap_header_struct hdr = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};

	if (argc != 2 || strcmp(argv[1], "guest") || !getenv("HEDDLE_LANDLOCK"))
		return;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		stop("set no_new_privs");
	for (int c = 0; c <= 63; c++) // without the right to, no_new_privs still keeps them from coming back
		if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0))
			break;
	if (syscall(SYS_capset, &hdr, none))
		stop("drop capabilities");
	if (syscall(SYS_landlock_restrict_self, RULES, 0))
		stop("enter Landlock domain");
	close(RULES);
	unsetenv("HEDDLE_LANDLOCK");
}
