package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/heddle-dev/heddle/controlplane/config"
)

// probeLimit bounds the question whether a local model server is there.
const probeLimit = 5 * time.Second

// localModels are the models that local providers are asked for when none is
// named, and how their servers are started.
var localModels = map[string]struct{ model, start string }{
	"ollama":   {"gpt-oss:20b", "start it with: ollama serve"},
	"lmstudio": {"openai/gpt-oss-20b", "start it with: lms server start"},
}

// localProvider lays the provider of --oss, and its model where none was named,
// over the config. Both go before what the config says, as --model does.
func (f *execFlags) localProvider(cfg *config.Config, overrides map[string]any) error {
	id := f.localProviderID
	if id == "" {
		id = cfg.OSSProvider()
	}
	if id == "" {
		return errors.New(`--oss needs a provider: give --local-provider ollama or lmstudio, or set oss_provider in the config`)
	}
	overrides["model_provider"] = id
	if _, given := overrides["model"]; given || f.model != "" {
		return nil
	}
	known, ok := localModels[id]
	if !ok {
		return fmt.Errorf("--oss with the provider %q needs --model", id)
	}
	overrides["model"] = known.model
	return nil
}

// probe finds out whether the server of a local provider is there, before a
// thread is made for it. Whatever it answers will do.
func probe(cfg *config.Config) error {
	p, err := cfg.Provider(cfg.ModelProvider())
	if err != nil {
		return err
	}
	known, ok := localModels[p.ID]
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.BaseURL+"/models", nil)
	if err != nil {
		return fmt.Errorf("model_providers.%s.base_url: %w", p.ID, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("the server of %s does not answer at %s; %s: %w", p.Name, p.BaseURL, known.start, err)
	}
	return resp.Body.Close()
}
