package mcp

// How a server's requests are authorised, as clients are told.
const (
	authNone        = "unsupported"
	authNotLoggedIn = "notLoggedIn"
	authBearer      = "bearerToken"
	authOAuth       = "oAuth"
)

func (c *client) authStatus(locked bool) string {
	switch {
	case c.cfg.URL == "":
		return authNone
	case c.cfg.authorized():
		return authBearer
	case locked:
		return authNotLoggedIn
	case c.host.Logins != nil && c.host.Logins.LoggedIn(c.cfg.login()):
		return authOAuth
	}
	return authNone
}
