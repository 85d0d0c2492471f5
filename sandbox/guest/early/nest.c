//go:build cgo
// Moves PID 1 of a sandbox into a nested user namespace where it has the caller's ids instead of 0, then gives
// up every capability. Must happen while the process has one thread.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void fail(const char *what)
{
	dprintf(2, "heddle-guest: %s: %s\n", what, strerror(errno));
	_exit(81);
}

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		fail(path);
	close(fd);
}

__attribute__((constructor)) static void nest(void)
{
	const char *ids = getenv("HEDDLE_NEST");
	unsigned uid, gid;
	char line[64];
	struct __user_cap_header_struct hdr = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};

	if (!ids || getpid() != 1)
		return;
	if (sscanf(ids, "%u:%u", &uid, &gid) != 2)
		return;
	if (unshare(CLONE_NEWUSER))
		fail("enter user namespace");
	put("/proc/self/setgroups", "deny");
	snprintf(line, sizeof line, "%u 0 1", uid);
	put("/proc/self/uid_map", line);
	snprintf(line, sizeof line, "%u 0 1", gid);
	put("/proc/self/gid_map", line);
	for (int c = 0; c <= 63; c++)
		if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) && errno == EINVAL)
			break;
	prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
		SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED, 0, 0, 0);
	if (syscall(SYS_capset, &hdr, none))
		fail("drop capabilities");
	unsetenv("HEDDLE_NEST");
}
