package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/controlplane/config"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// sessionFlags are the settings that a client brings to its session. They are
// the same for every command that opens one.
type sessionFlags struct {
	config           []string
	enable, disable  []string
	profile          string
	ignoreUserConfig bool
	ignoreRules      bool
	strict           bool
	bypassHookTrust  bool
}

func (f *sessionFlags) add(fs *pflag.FlagSet) {
	fs.StringArrayVarP(&f.config, "config", "c", nil, "set a config `key=value` for this session; dotted keys, values as TOML or plain text")
	fs.StringArrayVar(&f.enable, "enable", nil, "switch a `feature` on (features.NAME=true)")
	fs.StringArrayVar(&f.disable, "disable", nil, "switch a `feature` off (features.NAME=false)")
	fs.StringVarP(&f.profile, "profile", "p", "", "config `profile` to lay over the user config")
	fs.BoolVar(&f.bypassHookTrust, "dangerously-bypass-hook-trust", false, "run the hooks of the config without asking whether they are trusted; only where their files are")
	fs.BoolVar(&f.strict, "strict-config", false, "fail on config keys that are not known")
}

// overrides returns the config keys of the command line, highest last given.
func (f *sessionFlags) overrides() (map[string]any, error) {
	out := map[string]any{}
	for _, kv := range f.config {
		key, value, err := config.ParseOverride(kv)
		if err != nil {
			return nil, fmt.Errorf("-c %s: %w", kv, err)
		}
		out[key] = value
	}
	for _, name := range f.enable {
		out["features."+name] = true
	}
	for _, name := range f.disable {
		out["features."+name] = false
	}
	if f.bypassHookTrust {
		out["bypass_hook_trust"] = true
	}
	if f.ignoreRules {
		out["ignore_rules"] = true
	}
	return out, nil
}

// checkStrict refuses keys that are not known in the config of a home and among
// those of the session, where --strict-config asks for that.
func (f *sessionFlags) checkStrict(home config.Home, cwd string, overrides map[string]any) error {
	if !f.strict {
		return nil
	}
	_, err := config.Load(config.Options{
		Home: home, Env: environ(), Profile: f.profile, Overrides: overrides, Cwd: cwd, IgnoreUserConfig: f.ignoreUserConfig, Strict: true,
	})
	return err
}

// onDisconnect is what the config of a home and the session says of turns whose
// client is gone (on_disconnect); empty when it says nothing. A config that cannot
// be used says nothing: the session is refused for it.
func (f *sessionFlags) onDisconnect(home config.Home, cwd string, overrides map[string]any) string {
	cfg, err := config.Load(config.Options{
		Home: home, Env: environ(), Profile: f.profile, Overrides: overrides, Cwd: cwd, IgnoreUserConfig: f.ignoreUserConfig,
	})
	if err != nil {
		return ""
	}
	return cfg.OnDisconnect()
}

// attach makes the registration of a session in cwd with this process's
// environment.
func (f *sessionFlags) attach(cwd string, env map[string]string, overrides map[string]any) (*heddlev1.AttachRequest, error) {
	cfg, err := structpb.NewStruct(plain(overrides))
	if err != nil {
		return nil, fmt.Errorf("config overrides: %w", err)
	}
	return &heddlev1.AttachRequest{
		ClientVersion: buildVersion(), Cwd: cwd, Env: env, Config: cfg, Profile: f.profile,
		IgnoreUserConfig: f.ignoreUserConfig, Pid: int64(os.Getpid()),
	}, nil
}

// here is the request of a new session in the working folder, with the process's
// environment.
func (f *sessionFlags) here() (*heddlev1.AttachRequest, error) {
	overrides, err := f.overrides()
	if err != nil {
		return nil, usageError(err)
	}
	cwd, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the working folder: %w", err)
	}
	home, err := config.ResolveHome(environ())
	if err != nil {
		return nil, usageError(err)
	}
	if err := f.checkStrict(home, cwd, overrides); err != nil {
		return nil, usageError(err)
	}
	attach, err := f.attach(cwd, environ(), overrides)
	if err != nil {
		return nil, usageError(err)
	}
	attach.SessionId = uuid.Must(uuid.NewV7()).String()
	return attach, nil
}

// plain makes values of a TOML parse fit for a Struct.
func plain(in map[string]any) map[string]any {
	out := make(map[string]any, len(in))
	for k, v := range in {
		out[k] = plainValue(v)
	}
	return out
}

func plainValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return plain(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = plainValue(v[i])
		}
		return list
	case nil, bool, string, float64, int64, int, float32, int32, uint32, uint64:
		return v
	}
	return fmt.Sprint(v) // dates: TOML writes them as they read
}

// environ is the process's environment as a map.
func environ() map[string]string {
	env := map[string]string{}
	for _, kv := range os.Environ() {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" {
			env[k] = v
		}
	}
	return env
}
