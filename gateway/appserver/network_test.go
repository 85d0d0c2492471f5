package appserver

import (
	"encoding/json"
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func TestQuestionAboutHost(t *testing.T) {
	a := &heddlev1.Approval{Id: "a1", ThreadId: "t1", TurnId: "u1", ItemId: "i1", Subject: &heddlev1.Approval_Command{Command: &heddlev1.CommandApproval{
		Command: "curl x", Network: &heddlev1.NetworkContext{Host: "example.org", Protocol: "https", Port: 443}}}}
	method, params := approvalRequest(a, false)
	raw, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		ApprovalID string            `json:"approvalId"`
		ItemID     string            `json:"itemId"`
		Network    map[string]string `json:"networkApprovalContext"`
		Decisions  []string          `json:"availableDecisions"`
		Kind       string            `json:"kind"`
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if method != "item/commandExecution/requestApproval" || got.ApprovalID != "a1" || got.ItemID != "i1" || got.Kind != "command" ||
		got.Network["host"] != "example.org" || got.Network["protocol"] != "https" || len(got.Network) != 2 || len(got.Decisions) != 4 {
		t.Errorf("%s %s", method, raw)
	}
}

func TestDecisionOnHost(t *testing.T) {
	n := &heddlev1.NetworkContext{Host: "example.org"}
	amend := func(action, host string) string {
		return `{"decision":{"applyNetworkPolicyAmendment":{"network_policy_amendment":{"action":"` + action + `","host":"` + host + `"}}}}`
	}
	for answer, want := range map[string]heddlev1.Decision{
		amend("allow", "example.org"): heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION,
		amend("deny", "example.org"):  heddlev1.Decision_DECISION_DECLINE,
		amend("allow", "evil.test"):   heddlev1.Decision_DECISION_UNUSABLE,
		amend("maybe", "example.org"): heddlev1.Decision_DECISION_UNUSABLE,
		`{"decision":"accept"}`:       0,
		`{"decision":7}`:              0,
		`[]`:                          0,
	} {
		got, ok := decisionOnHost(json.RawMessage(answer), n)
		if got != want || ok != (want != 0) {
			t.Errorf("%s: %v, %v", answer, got, ok)
		}
	}
	if _, ok := decisionOnHost(json.RawMessage(amend("allow", "example.org")), nil); ok {
		t.Error("an amendment answers a question that is about no host")
	}
}
