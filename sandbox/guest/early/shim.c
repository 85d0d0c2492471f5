//go:build cgo
// A subreaper for one command: starts it, waits for it, gives what it left behind a moment to finish writing,
// kills the rest and reports. SIGUSR1 kills everything at once.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REPORT 3

struct report {
	int32_t kind, value;
	int64_t user, sys;
	int32_t leftovers, unused;
};

static void send_report(struct report r)
{
	if (write(REPORT, &r, sizeof r) != sizeof r)
		_exit(82);
}

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

// kill_children kills every direct child; grandchildren become children as their parents die.
static void kill_children(void)
{
	char buf[65536];
	ssize_t n;
	int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, buf, sizeof buf - 1);
	close(fd);
	if (n <= 0)
		return;
	buf[n] = 0;
	for (char *p = buf, *end; *p; p = end) {
		long pid = strtol(p, &end, 10);
		if (end == p)
			break;
		if (pid > 1)
			kill((pid_t)pid, SIGKILL);
	}
}

// confine_signals puts the calling process into a domain from which it cannot signal processes outside.
// Below a domain with rules for files, one without any would forbid links and renames between directories, so it
// then has one rule, which allows them.
static void confine_signals(int below)
{
	struct { uint64_t fs, net, scoped; } attr = {below ? 1ULL << 13 : 0, 0, 1ULL << 1};
	struct { uint64_t access; int32_t fd; } __attribute__((packed)) rule = {1ULL << 13, -1};
	int fd = syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
	if (below) {
		rule.fd = open("/", O_PATH | O_CLOEXEC);
		if (rule.fd < 0 || syscall(SYS_landlock_add_rule, fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0))
			_exit(83);
		close(rule.fd);
	}
	if (fd < 0 || syscall(SYS_landlock_restrict_self, fd, 0))
		_exit(83);
	close(fd);
}

static void reset_signals(void)
{
	sigset_t none;
	sigemptyset(&none);
	for (int s = 1; s < NSIG; s++)
		signal(s, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

static void child(const char *flags, const char *path, char **argv, char **envp, int errfd)
{
	int32_t e;
	reset_signals();
	prctl(PR_SET_TIMERSLACK, 50000, 0, 0, 0); // as early.TimerSlack
	setsid();
	if (strchr(flags, 't') && ioctl(0, TIOCSCTTY, 0))
		goto failed;
	if (strchr(flags, 's'))
		confine_signals(strchr(flags, 'l') != NULL);
	execve(path, argv, envp);
failed:
	e = errno;
	if (write(errfd, &e, sizeof e) != sizeof e)
		_exit(84);
	_exit(127);
}

static void run(int argc, char **argv, char **envp)
{
	const char *flags = argv[1];
	int64_t grace = atoll(argv[2]), limit = -1;
	struct report end = {3, 0, 0, 0, 0, 0};
	sigset_t wanted;
	struct rusage ru;
	int errpipe[2], status, main_ended = 0, kill_now = 0;
	int32_t e;
	pid_t pid, got;
	(void)argc;

	prctl(PR_SET_DUMPABLE, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	fcntl(REPORT, F_SETFD, FD_CLOEXEC);
	for (int s = 1; s < NSIG; s++)
		if (s != SIGCHLD && s != SIGUSR1)
			signal(s, SIG_IGN);
	sigemptyset(&wanted); // both are taken by sigtimedwait, so that none can be missed
	sigaddset(&wanted, SIGCHLD);
	sigaddset(&wanted, SIGUSR1);
	sigprocmask(SIG_SETMASK, &wanted, NULL);
	if (pipe2(errpipe, O_CLOEXEC))
		_exit(82);
	pid = fork();
	if (pid < 0)
		_exit(82);
	if (pid == 0)
		child(flags, argv[3], argv + 4, envp, errpipe[1]);
	close(errpipe[1]);
	while ((got = read(errpipe[0], &e, sizeof e)) < 0 && errno == EINTR)
		;
	close(errpipe[0]);
	if (got == sizeof e) {
		send_report((struct report){2, e, 0, 0, 0, 0});
		waitpid(pid, &status, 0);
		_exit(0);
	}
	send_report((struct report){1, pid, 0, 0, 0, 0});
	for (;;) {
		struct timespec wait = {0, 500000}, *timeout = &wait;

		while ((got = wait4(-1, &status, WNOHANG, &ru)) > 0) {
			if (got != pid)
				continue;
			main_ended = 1;
			limit = now_ms() + grace;
			end.value = status;
			end.user = ru.ru_utime.tv_sec * 1000000LL + ru.ru_utime.tv_usec;
			end.sys = ru.ru_stime.tv_sec * 1000000LL + ru.ru_stime.tv_usec;
		}
		if (got < 0 && errno == ECHILD)
			break;
		if (main_ended && now_ms() >= limit)
			kill_now = 1;
		if (kill_now) {
			end.leftovers |= main_ended;
			kill_children();
		} else if (!main_ended) {
			timeout = NULL;
		}
		if (sigtimedwait(&wanted, NULL, timeout) == SIGUSR1)
			kill_now = 1;
	}
	send_report(end);
	_exit(0);
}

__attribute__((constructor)) static void shim(int argc, char **argv, char **envp)
{
	if (argc >= 5 && strcmp(argv[0], "heddle-shim") == 0)
		run(argc, argv, envp);
}
