package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/gateway"
	"github.com/heddle-dev/heddle/gateway/appserver"
)

// startupFlags are those of the reference's app-server for hosts that start it,
// and those for services that heddle does not have.
type startupFlags struct {
	printConfig    bool
	signOut        bool
	clientInfo     string
	analytics      bool
	skillsSnapshot string
	codeModeHost   string
}

func (f *startupFlags) add(fs *pflag.FlagSet) {
	fs.BoolVar(&f.printConfig, "print-startup-config", false, "check the config, print its requirements as JSON and end")
	fs.BoolVar(&f.signOut, "startup-sign-out", false, "with --print-startup-config: forget the home's API key first")
	fs.StringVar(&f.clientInfo, "startup-client-info", "", "`JSON` that names the client (name, version, title); checked, and of no effect before initialize")
	fs.BoolVar(&f.analytics, "analytics-default-enabled", false, "accepted; there is no analytics")
	fs.StringVar(&f.skillsSnapshot, "cloud-skills-snapshot", "", "`file` of cloud skills: refused, there are none here")
	fs.StringVar(&f.codeModeHost, "code-mode-host", "", "`URL` of a code-mode host: refused, there is none here")
}

func (f *startupFlags) check(fs *pflag.FlagSet) error {
	switch {
	case fs.Changed("cloud-skills-snapshot"):
		return errors.New("--cloud-skills-snapshot: heddle has no cloud skills; put skills into the home's skills folder")
	case fs.Changed("code-mode-host"):
		return errors.New("--code-mode-host: heddle has no code mode, and so no host for it")
	case f.signOut && !f.printConfig:
		return errors.New("--startup-sign-out goes with --print-startup-config")
	case f.printConfig && fs.Changed("listen"):
		return errors.New("--print-startup-config serves nobody: leave --listen out")
	case fs.Changed("startup-client-info"):
		if err := checkClientInfo(f.clientInfo); err != nil {
			return fmt.Errorf("--startup-client-info: %w", err)
		}
	}
	return nil
}

// checkClientInfo wants what initialize wants as clientInfo.
func checkClientInfo(text string) error {
	var info struct {
		Name    *string `json:"name"`
		Version *string `json:"version"`
		Title   *string `json:"title"`
	}
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		return fmt.Errorf("want a JSON object: %w", err)
	}
	if info.Name == nil || info.Version == nil {
		return errors.New("name and version are needed")
	}
	return nil
}

// print says what a host needs to know before it starts a server: one line of
// JSON, with "error" where the config cannot be used.
func (f *startupFlags) print(cmd *cobra.Command, session *sessionFlags, overrides map[string]any) error {
	env := environ()
	home, err := config.ResolveHome(env)
	if err != nil {
		return usageError(err)
	}
	if f.signOut {
		if _, err := config.NewAccount(home).Logout(); err != nil {
			return err
		}
	}
	cfg, err := config.Load(config.Options{
		Home: home, Env: env, Profile: session.profile, Overrides: overrides,
		IgnoreUserConfig: session.ignoreUserConfig, Strict: session.strict,
	})
	if err == nil {
		err = unusable(cfg)
	}
	out := json.NewEncoder(cmd.OutOrStdout())
	if err == nil {
		return out.Encode(map[string]any{
			"appServerVersion": gateway.WireVersion(buildVersion()), "configRequirements": appserver.Requirements(),
		})
	}
	data := map[string]any{"reason": "configLoad", "detail": err.Error()}
	if e, ok := errors.AsType[*config.Error](err); ok && e.Warning.GetPath() != "" {
		data["filePath"], data["line"], data["column"] = e.Warning.GetPath(), e.Warning.GetLine(), e.Warning.GetColumn()
	}
	text := "the config cannot be used: " + err.Error()
	if err := out.Encode(map[string]any{"error": map[string]any{"code": -32600, "data": data, "message": text}}); err != nil {
		return err
	}
	return errors.New(text)
}
