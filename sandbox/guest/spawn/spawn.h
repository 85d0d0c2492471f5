#include <linux/filter.h>

// What a process is started with. Descriptors are -1 where there is none.
struct spawn {
	const char *path, *dir;
	char *const *argv, *const *envp;
	struct sock_fprog *calls; // a filter, or NULL; its listener goes to the parent
	int listen; // whether there is a listener
	int stdio[3];
	int extra;    // becomes descriptor 3
	int cgroup;   // directory to be born in
	int domain;   // Landlock rules; entering them makes a domain of its own
	int terminal; // take standard input as the controlling terminal
	int death;    // signal when the parent ends, or 0
	unsigned long slack; // of timers, in nanoseconds
	int channel[2];      // socket pair for the listener; one start at a time may use it
	// Results. The child shares this memory until it executes.
	int err, listener, ready;
};

// spawn returns the process id, or -1 with err set when nothing was left running.
long spawn(struct spawn *s);
