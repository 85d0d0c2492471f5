//go:build cgo
// Starts a process as vfork does: the child runs in this memory, on this stack, while the thread waits, and puts on
// itself what the process is to have. Nothing is copied, no thread is made or given up, and an error is simply
// there when the thread goes on.
#define _GNU_SOURCE
#include "spawn.h"

#include <errno.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

// The limit of open files that this process was started with; the Go runtime raises its own.
static struct rlimit files;

__attribute__((constructor)) static void keep_limit(void) { getrlimit(RLIMIT_NOFILE, &files); }

// The system call must not be made by a function: its return address would lie on the stack that the child goes on
// to use.
__attribute__((always_inline)) static inline long call5(long nr, long a, long b, long c, long d, long e)
{
#if defined(__x86_64__)
	long r;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	__asm__ volatile("syscall" : "=a"(r) : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
	return r;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = nr;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = e;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
	return x0;
#else
#error "no way to start processes on this processor"
#endif
}

// pass sends the listener to the parent.
static int pass(int channel, int fd)
{
	char one = 0;
	struct iovec iov = {&one, 1};
	union { char buf[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } u;
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.buf, .msg_controllen = sizeof u.buf};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	return sendmsg(channel, &m, 0) == 1 ? 0 : -1;
}

static int take(int channel)
{
	char one;
	struct iovec iov = {&one, 1};
	union { char buf[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } u;
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = u.buf, .msg_controllen = sizeof u.buf};
	struct cmsghdr *c;
	int fd = -1;
	ssize_t n;
	while ((n = recvmsg(channel, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT)) < 0 && errno == EINTR)
		;
	if (n == 1 && (c = CMSG_FIRSTHDR(&m)) && c->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(c), sizeof fd);
	return fd;
}

__attribute__((noinline, noreturn)) static void child(struct spawn *s, int clear)
{
	sigset_t none;
	int fd;

	if (clear)
		for (int i = 1; i < NSIG; i++) {
			struct sigaction now;
			if (!sigaction(i, NULL, &now) && now.sa_handler != SIG_IGN)
				signal(i, SIG_DFL);
		}
	sigemptyset(&none);
	if (sigprocmask(SIG_SETMASK, &none, NULL) || setsid() < 0)
		goto failed;
	for (int i = 0; i < 3; i++) // the sources lie above 3
		if (dup2(s->stdio[i], i) < 0)
			goto failed;
	if (s->extra >= 0 && dup2(s->extra, 3) < 0)
		goto failed;
	if (s->terminal && ioctl(0, TIOCSCTTY, 0))
		goto failed;
	if (s->death && prctl(PR_SET_PDEATHSIG, s->death, 0, 0, 0))
		goto failed;
	if (prctl(PR_SET_TIMERSLACK, s->slack, 0, 0, 0) || setrlimit(RLIMIT_NOFILE, &files) || chdir(s->dir))
		goto failed;
	if (s->domain >= 0 && syscall(SYS_landlock_restrict_self, s->domain, 0))
		goto failed;
	if (s->calls) {
		fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, s->listen ?
			SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV : 0, s->calls);
		if (fd < 0 || s->listen && pass(s->channel[1], fd))
			goto failed;
	}
	s->ready = 1;
	execve(s->path, s->argv, s->envp);
failed:
	s->err = errno;
	_exit(127);
}

__attribute__((noinline)) long spawn(struct spawn *s)
{
	struct clone_args a = {.flags = CLONE_VM | CLONE_VFORK | CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD};
	long pid;

	s->err = s->ready = 0;
	s->listener = -1;
	if (s->cgroup >= 0) {
		a.flags |= CLONE_INTO_CGROUP;
		a.cgroup = s->cgroup;
	}
	pid = call5(SYS_clone3, (long)&a, sizeof a, 0, 0, 0);
	if (pid == 0)
		child(s, 0);
	if ((pid == -ENOSYS || pid == -EINVAL) && s->cgroup < 0) { // an older kernel, or a container that hides the call
		sigset_t all, before; // no handler of ours may run in the child
		sigfillset(&all);
		sigprocmask(SIG_SETMASK, &all, &before);
		pid = call5(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
		if (pid == 0)
			child(s, 1);
		sigprocmask(SIG_SETMASK, &before, NULL);
	}
	if (pid < 0) {
		s->err = -pid;
		return -1;
	}
	if (s->listen) // also when the child was killed halfway: nothing may be left for the next one
		s->listener = take(s->channel[0]);
	if (s->ready && !s->err && s->listen && s->listener < 0) { // it would run with calls that nobody answers
		kill(pid, SIGKILL);
		s->err = EMFILE;
	}
	if (s->err) {
		if (s->listener >= 0)
			close(s->listener);
		s->listener = -1;
		return -1; // whoever reaps children reaps it
	}
	return pid; // perhaps of one that was killed before it could execute, which its end tells
}
