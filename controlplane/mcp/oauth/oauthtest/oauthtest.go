// Package oauthtest is an MCP server behind a login, with the authorization
// server that it names, for tests. It is safe for concurrent use.
package oauthtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Server is both servers at one address: the MCP endpoint is URL + "/mcp".
type Server struct {
	*httptest.Server
	// ExpiresIn is the life of access tokens that are given out, in seconds.
	ExpiresIn int
	// Refuse makes the person refuse the login.
	Refuse bool

	mcp http.Handler

	mu      sync.Mutex
	clients map[string]string // redirect URI by client id
	codes   map[string]url.Values
	access  map[string]bool
	refresh map[string]bool
	// Refreshes counts refreshed tokens.
	Refreshes int
	// Scopes are those of the last authorization.
	Scopes string
}

// New starts the servers; the MCP server has one tool, whoami.
func New() *Server {
	s := &Server{ExpiresIn: 3600, clients: map[string]string{}, codes: map[string]url.Values{}, access: map[string]bool{}, refresh: map[string]bool{}}
	server := sdk.NewServer(&sdk.Implementation{Name: "locked", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "whoami", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}},
		func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "somebody who is logged in"}}}, nil, nil
		})
	s.mcp = sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", s.guarded)
	mux.HandleFunc("/.well-known/oauth-protected-resource", s.resource)
	mux.HandleFunc("/.well-known/oauth-authorization-server", s.metadata)
	mux.HandleFunc("/register", s.register)
	mux.HandleFunc("/authorize", s.authorize)
	mux.HandleFunc("/token", s.token)
	s.Server = httptest.NewServer(mux)
	return s
}

// Endpoint is the URL of the MCP server.
func (s *Server) Endpoint() string { return s.URL + "/mcp" }

// Expire makes every access token worthless, and the refresh tokens too if asked.
func (s *Server) Expire(refreshToo bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.access)
	if refreshToo {
		clear(s.refresh)
	}
}

func (s *Server) guarded(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	ok := s.access[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	s.mu.Unlock()
	if !ok {
		w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+s.URL+`/.well-known/oauth-protected-resource"`)
		http.Error(w, "log in first", http.StatusUnauthorized)
		return
	}
	s.mcp.ServeHTTP(w, r)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (s *Server) resource(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"resource": s.Endpoint(), "authorization_servers": []string{s.URL}, "scopes_supported": []string{"read"}})
}

func (s *Server) metadata(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{
		"issuer": s.URL, "authorization_endpoint": s.URL + "/authorize", "token_endpoint": s.URL + "/token", "registration_endpoint": s.URL + "/register",
		"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none"},
	})
}

func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	var body struct {
		RedirectURIs []string `json:"redirect_uris"`
		Name         string   `json:"client_name"`
	}
	if json.NewDecoder(r.Body).Decode(&body) != nil || len(body.RedirectURIs) != 1 {
		answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_client_metadata"})
		return
	}
	id := rand.Text()
	s.mu.Lock()
	s.clients[id] = body.RedirectURIs[0]
	s.mu.Unlock()
	answer(w, http.StatusCreated, map[string]any{"client_id": id, "client_name": body.Name, "redirect_uris": body.RedirectURIs, "token_endpoint_auth_method": "none"})
}

// authorize is the page on which a person says yes; here it says so at once.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Get("redirect_uri") == "" || s.clients[q.Get("client_id")] != q.Get("redirect_uri") || q.Get("code_challenge_method") != "S256" {
		http.Error(w, "no", http.StatusBadRequest)
		return
	}
	back := url.Values{"state": {q.Get("state")}}
	if s.Refuse {
		back.Set("error", "access_denied")
	} else {
		code := rand.Text()
		s.codes[code], s.Scopes = q, q.Get("scope")
		back.Set("code", code)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := false
	switch r.Form.Get("grant_type") {
	case "authorization_code":
		asked := s.codes[r.Form.Get("code")]
		delete(s.codes, r.Form.Get("code"))
		sum := sha256.Sum256([]byte(r.Form.Get("code_verifier")))
		ok = asked != nil && base64.RawURLEncoding.EncodeToString(sum[:]) == asked.Get("code_challenge")
	case "refresh_token":
		ok = s.refresh[r.Form.Get("refresh_token")]
		delete(s.refresh, r.Form.Get("refresh_token")) // each serves once
		if ok {
			s.Refreshes++
		}
	}
	if !ok {
		answer(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	access, refresh := "access-"+rand.Text(), "refresh-"+rand.Text()
	s.access[access], s.refresh[refresh] = true, true
	answer(w, http.StatusOK, map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": s.ExpiresIn, "refresh_token": refresh})
}
