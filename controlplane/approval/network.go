package approval

import "google.golang.org/protobuf/types/known/structpb"

// NetworkFacts is what decides whether a person is asked about a host that no
// list names.
type NetworkFacts struct {
	// Policy is the thread's approval policy, Granular its flags.
	Policy   string
	Granular *structpb.Struct
	// Deny is true when the policy's network refuses such hosts.
	Deny bool
}

// DecideNetwork says why such a host is refused without asking; empty when it is
// asked about.
func DecideNetwork(f NetworkFacts) string {
	switch {
	case f.Deny:
		return "it is not on the list of allowed hosts"
	case f.Policy == Never, f.Policy == Granular && !granularFlag(f.Granular, "sandbox_approval"):
		return "it is not on the list of allowed hosts and the approval policy does not allow asking"
	}
	return ""
}

// AllowHost remembers a host that the commands of the thread may reach.
func (m *Memory) AllowHost(host string) { m.add(key("host", host)) }

// HostAllowed reports whether exactly this host was accepted.
func (m *Memory) HostAllowed(host string) bool { return m.has(key("host", host)) }
