package appserver

import (
	"encoding/json"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// askAboutHost makes the question about a running command one about a host. The
// item may have been asked about before: approvalId tells the questions apart.
func askAboutHost(params map[string]any, approvalID string, n *heddlev1.NetworkContext) {
	params["approvalId"] = approvalID
	params["networkApprovalContext"] = map[string]string{"host": n.GetHost(), "protocol": n.GetProtocol()}
	params["availableDecisions"] = []any{"accept", "acceptForSession", "decline", "cancel"}
}

// decisionOnHost reads an amendment of the network's lists as an answer: the host
// is allowed for the session, or declined. ok is false for every other answer.
func decisionOnHost(result json.RawMessage, n *heddlev1.NetworkContext) (d heddlev1.Decision, ok bool) {
	var body struct {
		Decision struct {
			Apply *struct {
				Amendment struct {
					Action string `json:"action"`
					Host   string `json:"host"`
				} `json:"network_policy_amendment"`
			} `json:"applyNetworkPolicyAmendment"`
		} `json:"decision"`
	}
	exact := member(member(member(result, "decision"), "applyNetworkPolicyAmendment"), "network_policy_amendment")
	if n == nil || json.Unmarshal(result, &body) != nil || body.Decision.Apply == nil || string(exact) == "null" {
		return 0, false
	}
	m := body.Decision.Apply.Amendment
	switch {
	case m.Host != n.GetHost():
		return heddlev1.Decision_DECISION_UNUSABLE, true
	case m.Action == "allow":
		return heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION, true
	case m.Action == "deny":
		return heddlev1.Decision_DECISION_DECLINE, true
	}
	return heddlev1.Decision_DECISION_UNUSABLE, true
}
