package tool

import (
	"fmt"
	"strings"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// AgentsNamespace holds the tools that deal with sub-agents.
const AgentsNamespace = "multi_agent_v1"

// Names of the tools that deal with sub-agents.
const (
	NameSpawnAgent  = "spawn_agent"
	NameSendInput   = "send_input"
	NameWaitAgent   = "wait_agent"
	NameCloseAgent  = "close_agent"
	NameResumeAgent = "resume_agent"
)

// Bounds of a wait for sub-agents.
const (
	defaultAgentWait = 30 * time.Second
	minAgentWait     = 10 * time.Second
	maxAgentWait     = time.Hour
	// maxTargets bounds the agents of one call.
	maxTargets = 64
)

// Agents is a call of one of the tools for sub-agents; Name tells which.
type Agents struct {
	Name string
	// Targets are the agents concerned; empty for spawn_agent.
	Targets []string
	// Input is set for spawn_agent and send_input.
	Input *heddlev1.UserMessage
	// Model and Effort override the parent's.
	Model  string
	Effort string
	// Fork gives the new agent the conversation so far.
	Fork bool
	// Interrupt ends what the agent is doing first.
	Interrupt bool
	// Wait is how long wait_agent waits; clamped.
	Wait time.Duration
}

func (*Agents) call() {}

func agentSpecs() []model.Tool {
	id := text("Id of the agent, as spawn_agent returned it.")
	item := object(props{
		"type":      map[string]any{"type": "string", "enum": []string{"text", "image", "local_image"}},
		"text":      text("For text."),
		"image_url": text("For image: a data URL."),
		"path":      text("For local_image: the path of the file."),
	}, "type")
	spec := func(name, description string, p props, required ...string) model.Tool {
		t := function(name, description, object(p, required...))
		t.Namespace = AgentsNamespace
		return t
	}
	return []model.Tool{
		spec(NameCloseAgent, "Ends an agent and everything it runs, and returns what it was at. Agents stay open, and count against the limit, until they are closed.", props{"target": id}, "target"),
		spec(NameResumeAgent, "Opens an agent again that was closed.", props{"id": id}, "id"),
		spec(NameSendInput, "Sends a message to an agent: it joins what the agent is doing, or begins its next piece of work.", props{
			"target": id, "message": text("The message, as plain text. Give this or items."), "items": listOf(item, "The message in parts."),
			"interrupt": typed("boolean", "True ends what the agent is doing first; false when left out."),
		}, "target"),
		spec(NameSpawnAgent, "Starts a sub-agent that works on a task of its own beside you, in the same workspace, and returns its id at once. Use it only when the user or the instructions of the "+
			"workspace ask for sub-agents or for work in parallel. Give it a task that is bounded, needs nothing it cannot see, and touches no file that you or another agent changes. "+
			"Do the work that your next step depends on yourself.", props{
			"message": text("The task, as plain text. Give this or items."), "items": listOf(item, "The task in parts."),
			"fork_context":     typed("boolean", "True shows the agent this conversation; false when left out."),
			"model":            text("Model of the agent; yours when left out, which is preferred."),
			"reasoning_effort": text("Reasoning effort of the agent; yours when left out."),
		}),
		spec(NameWaitAgent, "Waits until one of some agents has finished its work, and returns the states of those that have, with their last messages. An empty status means that the time ran out.", props{
			"targets":    listOf(map[string]any{"type": "string"}, "Ids of the agents."),
			"timeout_ms": typed("number", "Milliseconds to wait: 30000 when left out, 10000 to 3600000. Prefer minutes to asking often."),
		}, "targets"),
	}
}

func isAgents(name string) bool {
	switch name {
	case NameSpawnAgent, NameSendInput, NameWaitAgent, NameCloseAgent, NameResumeAgent:
		return true
	}
	return false
}

// agentArgs are the arguments of the tools for sub-agents.
type agentArgs struct {
	Target    string   `json:"target"`
	ID        string   `json:"id"`
	Targets   []string `json:"targets"`
	Message   string   `json:"message"`
	Model     string   `json:"model"`
	Effort    string   `json:"reasoning_effort"`
	Fork      bool     `json:"fork_context"`
	Interrupt bool     `json:"interrupt"`
	Timeout   *number  `json:"timeout_ms"`
	Items     []struct {
		Type  string `json:"type"`
		Text  string `json:"text"`
		Image string `json:"image_url"`
		Path  string `json:"path"`
	} `json:"items"`
}

func parseAgents(name, args string) (Call, error) {
	var a agentArgs
	if args == "" {
		args = "{}"
	}
	if err := decodeArgs(args, &a); err != nil {
		return nil, err
	}
	c := &Agents{Name: name, Model: a.Model, Effort: a.Effort, Fork: a.Fork, Interrupt: a.Interrupt, Wait: clampYield(a.Timeout, defaultAgentWait, minAgentWait, maxAgentWait)}
	switch name {
	case NameWaitAgent:
		if len(a.Targets) == 0 || len(a.Targets) > maxTargets {
			return nil, fmt.Errorf("targets must name 1 to %d agents", maxTargets)
		}
		c.Targets = a.Targets
		return c, nil
	case NameResumeAgent:
		if a.ID == "" {
			return nil, missing("id")
		}
		c.Targets = []string{a.ID}
		return c, nil
	case NameSendInput, NameCloseAgent:
		if a.Target == "" {
			return nil, missing("target")
		}
		c.Targets = []string{a.Target}
	}
	if name == NameCloseAgent {
		return c, nil
	}
	in, err := a.input()
	if err != nil {
		return nil, err
	}
	c.Input = in
	return c, nil
}

// input is what an agent is told, as a message or as items.
func (a *agentArgs) input() (*heddlev1.UserMessage, error) {
	in := &heddlev1.UserMessage{FromAgent: true}
	if strings.TrimSpace(a.Message) != "" {
		in.Parts = append(in.Parts, &heddlev1.InputPart{Part: &heddlev1.InputPart_Text{Text: a.Message}})
	}
	for _, i := range a.Items {
		switch i.Type {
		case "text":
			in.Parts = append(in.Parts, &heddlev1.InputPart{Part: &heddlev1.InputPart_Text{Text: i.Text}})
		case "image":
			in.Parts = append(in.Parts, &heddlev1.InputPart{Part: &heddlev1.InputPart_ImageUrl{ImageUrl: i.Image}})
		case "local_image":
			in.Parts = append(in.Parts, &heddlev1.InputPart{Part: &heddlev1.InputPart_LocalImage{LocalImage: i.Path}})
		default:
			return nil, fmt.Errorf("unknown variant `%s`, expected one of `text`, `image`, `local_image`", i.Type)
		}
	}
	switch {
	case len(in.Parts) == 0:
		return nil, missing("message")
	case a.Message != "" && len(a.Items) > 0:
		return nil, fmt.Errorf("give message or items, not both")
	}
	return in, nil
}
