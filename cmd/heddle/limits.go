package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/heddle-dev/heddle/gateway/appserver"
)

// limitFlags bound what the clients of a gateway can make it hold.
type limitFlags struct {
	limits  appserver.Limits
	clients string
}

func (f *limitFlags) add(fs *pflag.FlagSet) {
	d := appserver.Limits{}.WithDefaults()
	fs.IntVar(&f.limits.Requests, "max-requests", d.Requests, "`number` of requests of one connection that are worked on or not read yet")
	fs.IntVar(&f.limits.ConnectionBytes, "max-connection-memory", d.ConnectionBytes, "`bytes` of one connection's requests and unread answers")
	fs.IntVar(&f.limits.MessageBytes, "max-message", d.MessageBytes, "`bytes` of the largest message that is read")
	fs.IntVar(&f.limits.Threads, "max-threads", d.Threads, "`number` of threads that are loaded at a time")
	fs.IntVar(&f.limits.Connections, "max-connections", d.Connections, "`number` of connections of a listener")
	fs.StringVar(&f.clients, "client-versions", "", "`FROM..TO` versions of clients that are served, TO excluded (default all)")
}

func (f *limitFlags) check() (appserver.Limits, appserver.ClientRange, error) {
	clients, err := appserver.ParseClientRange(f.clients)
	if err != nil {
		return appserver.Limits{}, clients, fmt.Errorf("--client-versions: %w", err)
	}
	l := f.limits
	for _, v := range []int{l.Requests, l.ConnectionBytes, l.MessageBytes, l.Threads, l.Connections} {
		if v <= 0 {
			return l, clients, fmt.Errorf("a limit of %d serves nobody", v)
		}
	}
	return l, clients, l.Check()
}
