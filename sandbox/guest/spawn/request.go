package spawn

// Request describes a process. Descriptors are -1 where there is none, and otherwise lie above 3. The process gets
// a session of its own, default signal actions, and no descriptor that is not named here.
type Request struct {
	Path        string
	Argv, Env   []string
	Dir         string
	Stdio       [3]int
	Extra       int    // becomes descriptor 3
	Cgroup      int    // the cgroup v2 directory it is born in
	Domain      int    // Landlock ruleset that it enters, in a domain of its own
	Terminal    bool   // its standard input is its controlling terminal
	DeathSignal int    // what it gets when this process ends
	TimerSlack  uint64 // nanoseconds
	Supervise   bool   // the filter hands calls to the listener that Start returns
	Filter      bool   // the filter is put on without one
}
