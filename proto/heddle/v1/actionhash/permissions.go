package actionhash

import heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"

// Under returns the digest of what permissions are laid over.
func Under(cwd string, policy *heddlev1.SandboxPolicy) []byte {
	return Permissions(&heddlev1.PermissionsRequest{Cwd: cwd}, policy)
}

// Permissions returns the hash of a request for permissions: what is asked for,
// and the policy that it would be laid over. The folder is in the request.
func Permissions(p *heddlev1.PermissionsRequest, policy *heddlev1.SandboxPolicy) []byte {
	e := newEncoder("permissions")
	e.string(p.GetCwd())
	e.strings(p.GetWrite())
	e.strings(p.GetRead())
	e.bool(p.GetNetwork())
	e.policy(policy)
	return e.h.Sum(nil)
}
