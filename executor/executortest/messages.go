package executortest

import (
	"time"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// Lease returns a lease; renew is its time to renewal.
func Lease(id, scope string, epoch uint64, fence, renew time.Duration) *executorv1.Lease {
	return &executorv1.Lease{LeaseId: id, Scope: scope, Epoch: epoch, FenceAfterMs: fence.Milliseconds(), RenewByMs: renew.Milliseconds()}
}

// Grant wraps a lease.
func Grant(l *executorv1.Lease) *executorv1.ConnectResponse {
	return &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Grant{Grant: &executorv1.LeaseGrant{Lease: l}}}
}

// Assign is the full list of leases.
func Assign(list ...*executorv1.Lease) *executorv1.ConnectResponse {
	return &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Assignments{Assignments: &executorv1.Assignments{Leases: list}}}
}

// Renew renews leases.
func Renew(round uint64, list ...*executorv1.Lease) *executorv1.ConnectResponse {
	return &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Renewal{Renewal: &executorv1.LeaseRenewal{Round: round, Leases: list}}}
}

// Revoke takes a lease back.
func Revoke(id string, epoch uint64, reason string) *executorv1.ConnectResponse {
	return &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Revoke{Revoke: &executorv1.LeaseRevoke{LeaseId: id, Epoch: epoch, Reason: reason}}}
}

// Do wraps an action.
func Do(a *executorv1.Action) *executorv1.ConnectResponse {
	return &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Action{Action: a}}
}

// Control wraps a control of an action.
func Control(c *executorv1.ActionControl) *executorv1.ConnectResponse {
	return &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Control{Control: c}}
}

// OutputAck acknowledges output.
func OutputAck(action string, stream int32, offset int64) *executorv1.ConnectResponse {
	return &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_OutputAck{
		OutputAck: &executorv1.OutputAck{ActionId: action, Stream: stream, Offset: offset}}}
}

// ResultAck acknowledges a result.
func ResultAck(action string) *executorv1.ConnectResponse {
	return &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_ResultAck{ResultAck: &executorv1.ResultAck{ActionId: action}}}
}
