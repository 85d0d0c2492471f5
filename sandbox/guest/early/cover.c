//go:build cgo
// Hides many paths of a sandbox that was made and does not run yet. It joins the user and mount namespaces on
// descriptors 3 and 4 and binds, over each path of the list on descriptor 5, one of two empty things that are mounted
// there already. Must happen while the process has one thread.
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static void stop(const char *what)
{
	dprintf(2, "%s: %s\n", what, strerror(errno));
	_exit(82);
}

// The list: the empty directory, the empty file, then each path after the letter d or f. All end with a zero byte.
__attribute__((constructor)) static void cover(void)
{
	struct stat st;
	const char *list, *end, *source[2];

	if (!getenv("HEDDLE_COVER") || getpid() == 1)
		return;
	if (setns(3, CLONE_NEWUSER) || setns(4, CLONE_NEWNS))
		stop("enter sandbox");
	if (fstat(5, &st) || st.st_size == 0)
		stop("read the list of hidden paths");
	list = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, 5, 0);
	if (list == MAP_FAILED || list[st.st_size - 1] != 0)
		stop("read the list of hidden paths");
	end = list + st.st_size;
	for (int i = 0; i < 2 && list < end; i++, list += strlen(list) + 1)
		source[i] = list;
	for (; list < end; list += strlen(list) + 1) {
		int i = *list == 'f';
		const char *path = list + 1;

		// Whether it came to lie there is seen in the mount table afterwards.
		if (mount(source[i], path, NULL, MS_BIND, NULL))
			stop(path);
	}
	_exit(0);
}
