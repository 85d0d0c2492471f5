package appserver

import (
	"context"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// initialize opens the connection. It needs nobody but the gateway itself.
func (s *Server) initialize(_ context.Context, r *call, p *protocol.InitializeParams) (any, error) {
	c := r.client
	if err := s.checkClient(p.ClientInfo); err != nil {
		return nil, err
	}
	numbered, err := wantsNumbers(p.Capabilities)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.initialized = true
	if caps := p.Capabilities; caps != nil {
		c.experimental = caps.ExperimentalAPI
		c.extended, c.numbered = caps.Heddle != nil, numbered
		c.optOut = map[string]bool{}
		for _, m := range caps.OptOut {
			c.optOut[m] = true
		}
	}
	extended := c.extended
	c.mu.Unlock()
	s.mu.Lock()
	if s.originator == "" {
		s.originator = p.ClientInfo.Name
	}
	originator := s.originator
	s.mu.Unlock()
	s.session.Start()
	r.then(func() {
		go s.greet(c)
	})
	out := protocol.InitializeResult{
		UserAgent: userAgent(originator, s.cfg.Version, s.cfg.Terminal, p.ClientInfo), CodexHome: s.cfg.Home, PlatformFamily: "unix", PlatformOs: "linux",
	}
	if extended {
		out.Heddle = &protocol.HeddleFeatures{
			ProtocolVersion: "v2", ServerVersion: s.cfg.Version, TestedWith: testedClients(), Features: features(),
		}
	}
	return out, nil
}

// remoteControl is the state of what heddle does not have.
func (s *Server) remoteControl() list {
	return list{"status": "disabled", "serverName": "heddle", "installationId": s.session.ID(), "environmentId": nil}
}

// greet sends what every connection is told first.
func (s *Server) greet(c *client) {
	c.tell("remoteControl/status/changed", s.remoteControl())
	attached, err := s.session.Attached(c.ctx)
	if err != nil {
		if c.ctx.Err() == nil {
			s.log.Error("no control plane", "error", err)
		}
		return
	}
	for _, w := range attached.GetConfigWarnings() {
		c.tell("configWarning", configWarning(w))
	}
}

func configWarning(w *heddlev1.ConfigWarning) any {
	out := map[string]any{"summary": w.GetSummary(), "details": nil, "path": nil, "range": nil}
	if w.GetDetails() != "" {
		out["details"] = w.GetDetails()
	}
	if w.GetPath() != "" {
		out["path"] = w.GetPath()
	}
	if w.GetLine() > 0 {
		at := map[string]int32{"line": w.GetLine(), "column": max(w.GetColumn(), 1)}
		out["range"] = map[string]any{"start": at, "end": at}
	}
	return out
}
