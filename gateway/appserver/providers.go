package appserver

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/google/uuid"
	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
)

// providerTable returns what is done for a method about providers of models and
// the account that pays for them.
func providerTable(method string) (entry, bool) {
	switch method {
	case "modelProvider/list":
		return handle((*Server).providerList), true
	case "modelProvider/capabilities/read":
		return handle((*Server).providerCapabilities), true
	case "modelProvider/config/write":
		return handle((*Server).providerWrite), true
	case "modelProvider/default/set":
		return handle((*Server).providerDefault), true
	case "account/read":
		return handle((*Server).accountRead), true
	case "account/login/start":
		return handle((*Server).loginStart), true
	case "account/login/cancel":
		return handle((*Server).loginCancel), true
	case "account/logout":
		return bare((*Server).logout), true
	}
	return entry{}, false
}

// providerService runs a call of the provider service that may be repeated.
func providerService[T any](ctx context.Context, s *Server, call func(context.Context, heddlev1.ProviderServiceClient) (T, error)) (out T, err error) {
	err = s.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		out, err = call(ctx, heddlev1.NewProviderServiceClient(cc))
		return err
	})
	return out, err
}

func (s *Server) providers(ctx context.Context) (*heddlev1.ListProvidersResponse, error) {
	return providerService(ctx, s, func(ctx context.Context, c heddlev1.ProviderServiceClient) (*heddlev1.ListProvidersResponse, error) {
		return c.ListProviders(ctx, &heddlev1.ListProvidersRequest{})
	})
}

func fromProvider(p *heddlev1.ProviderInfo) list {
	var base *string
	if p.GetBaseUrl() != "" && p.GetId() != "openai" {
		base = &p.BaseUrl
	}
	settings := list{"type": "openai"}
	if p.GetId() != "openai" {
		auth := list{"mode": "none"}
		switch p.GetAuth() {
		case heddlev1.ProviderAuth_PROVIDER_AUTH_ENVIRONMENT:
			auth = list{"mode": "environmentVariable", "envKey": p.GetEnvKey()}
		case heddlev1.ProviderAuth_PROVIDER_AUTH_CONFIGURED:
			auth = list{"mode": "externallyConfigured", "envKey": nil}
		}
		settings = list{"type": "customGateway", "auth": auth}
	}
	return list{"id": p.GetId(), "name": p.GetName(), "canEdit": p.GetEditable(), "baseUrl": base, "settings": settings}
}

func (s *Server) providerList(ctx context.Context, _ *call, _ *protocol.NoParams) (any, error) {
	resp, err := s.providers(ctx)
	if err != nil {
		return nil, err
	}
	data := []any{}
	for _, p := range resp.GetProviders() {
		data = append(data, fromProvider(p))
	}
	return list{"data": data, "defaultProviderId": resp.GetDefaultId(), "canChangeDefault": !resp.GetDefaultFixed()}, nil
}

func (s *Server) providerCapabilities(ctx context.Context, _ *call, _ *protocol.NoParams) (any, error) {
	resp, err := s.providers(ctx)
	if err != nil {
		return nil, err
	}
	search := false
	for _, p := range resp.GetProviders() {
		search = search || p.GetId() == resp.GetDefaultId() && p.GetWebSearch()
	}
	return list{"imageGeneration": false, "webSearch": search}, nil
}

// configPathNotFound says that a config write names what is not there.
const configPathNotFound = "configPathNotFound"

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkPatch refuses values that a provider cannot have.
func checkPatch(p *protocol.ProviderPatch) error {
	refuse := func(text string) error { return writeRefused("configValidationError", text) }
	if p.Name != nil && strings.TrimSpace(*p.Name) == "" || p.Name == nil && p.ProviderID == nil {
		return refuse("A provider needs a name.")
	}
	if p.BaseURL.Set {
		u, err := url.Parse(p.BaseURL.Value)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
			return refuse("baseUrl is an http or https address without credentials, query and fragment.")
		}
	} else if p.ProviderID == nil {
		return refuse("A new provider needs a baseUrl.")
	}
	if p.EnvKey.Set && !envName.MatchString(p.EnvKey.Value) {
		return refuse("envKey is not the name of an environment variable.")
	}
	return nil
}

// newProviderID makes an id of a name that no provider has.
func newProviderID(name string, taken map[string]bool) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	base := strings.Join(words, "-")
	if base == "" {
		base = "custom"
	}
	id := base
	for n := 2; taken[id]; n++ {
		id = fmt.Sprintf("%s-%d", base, n)
	}
	return id
}

// providerEdits are the changes of the config file that a patch asks for.
func providerEdits(p *protocol.ProviderPatch, id string) []*heddlev1.ConfigEdit {
	table := "model_providers." + quoteKey(id) + "."
	var edits []*heddlev1.ConfigEdit
	set := func(key string, v *structpb.Value) {
		edits = append(edits, &heddlev1.ConfigEdit{Key: table + key, Value: v})
	}
	if p.Name != nil {
		set("name", structpb.NewStringValue(strings.TrimSpace(*p.Name)))
	}
	for key, v := range map[string]protocol.OptionalText{"base_url": p.BaseURL, "env_key": p.EnvKey} {
		switch {
		case v.Set:
			set(key, structpb.NewStringValue(v.Value))
		case v.Null && p.ProviderID != nil:
			set(key, structpb.NewNullValue())
		}
	}
	if p.ProviderID == nil {
		set("wire_api", structpb.NewStringValue("responses"))
	}
	return edits
}

// quoteKey makes a part of a dotted key of a provider's id.
func quoteKey(id string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(id) + `"`
}

// providerWrite makes a provider, or changes one that the config has.
func (s *Server) providerWrite(ctx context.Context, _ *call, params *protocol.ProviderWriteParams) (any, error) {
	p := &params.Settings
	if p.Type != "customGateway" {
		return nil, invalid("modelProvider/config/write of " + p.Type + " is not supported by this server")
	}
	resp, err := s.providers(ctx)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, known := range resp.GetProviders() {
		taken[known.GetId()] = true
		if p.ProviderID != nil && known.GetId() == *p.ProviderID && !known.GetEditable() {
			return nil, writeRefused("configValidationError", "A provider that is built in cannot be changed.")
		}
	}
	if p.ProviderID != nil && !taken[*p.ProviderID] {
		return nil, writeRefused(configPathNotFound, fmt.Sprintf("There is no provider %q.", *p.ProviderID))
	}
	if err := checkPatch(p); err != nil {
		return nil, err
	}
	id := text(p.ProviderID)
	if p.ProviderID == nil {
		id = newProviderID(*p.Name, taken)
	}
	if edits := providerEdits(p, id); len(edits) > 0 {
		if _, err := s.writeConfig(ctx, &heddlev1.WriteConfigRequest{Edits: edits}); err != nil {
			return nil, err
		}
	}
	if resp, err = s.providers(ctx); err != nil {
		return nil, err
	}
	for _, known := range resp.GetProviders() {
		if known.GetId() == id {
			return list{"provider": fromProvider(known)}, nil
		}
	}
	return nil, errors.New("the provider that was written is not there; another writer may have removed it")
}

func (s *Server) providerDefault(ctx context.Context, _ *call, p *protocol.ProviderDefaultParams) (any, error) {
	resp, err := s.providers(ctx)
	if err != nil {
		return nil, err
	}
	for _, known := range resp.GetProviders() {
		if known.GetId() == p.ProviderID {
			return s.writeConfig(ctx, &heddlev1.WriteConfigRequest{Edits: []*heddlev1.ConfigEdit{
				{Key: "model_provider", Value: structpb.NewStringValue(p.ProviderID)},
			}})
		}
	}
	return nil, writeRefused("configValidationError", fmt.Sprintf("Model provider `%s` is not configured.", p.ProviderID))
}

func (s *Server) account(ctx context.Context) (*heddlev1.GetAccountResponse, error) {
	return providerService(ctx, s, func(ctx context.Context, c heddlev1.ProviderServiceClient) (*heddlev1.GetAccountResponse, error) {
		return c.GetAccount(ctx, &heddlev1.GetAccountRequest{})
	})
}

func (s *Server) accountRead(ctx context.Context, _ *call, _ *protocol.AccountReadParams) (any, error) {
	a, err := s.account(ctx)
	if err != nil {
		return nil, err
	}
	out := list{"account": nil, "requiresOpenaiAuth": a.GetRequired(), "userId": nil, "workspaceRouting": nil}
	if a.GetPresent() {
		out["account"] = list{"type": "apiKey"}
	}
	return out, nil
}

// loginStart logs in with a key. The accounts of vendors are not known here.
func (s *Server) loginStart(ctx context.Context, r *call, p *protocol.LoginParams) (any, error) {
	if p.Type != "apiKey" {
		return nil, invalid("account/login/start with " + p.Type + " is not supported by this server")
	}
	_, err := providerService(ctx, s, func(ctx context.Context, c heddlev1.ProviderServiceClient) (*heddlev1.LoginResponse, error) {
		return c.Login(ctx, &heddlev1.LoginRequest{ApiKey: p.APIKey})
	})
	if err != nil {
		return nil, err
	}
	r.then(func() {
		s.broadcast(note{method: "account/login/completed", all: true, params: list{"loginId": nil, "success": true, "error": nil, "onboardingEntrypoint": nil}}, nil)
		s.accountChanged("apikey")
	})
	return list{"type": "apiKey"}, nil
}

func (s *Server) accountChanged(mode any) {
	s.broadcast(note{method: "account/updated", all: true, params: list{"authMode": mode, "planType": nil, "reason": nil}}, nil)
}

// loginCancel gives a login up: one with a key is over with its answer.
func (s *Server) loginCancel(_ context.Context, _ *call, p *protocol.LoginCancelParams) (any, error) {
	if _, err := uuid.Parse(p.LoginID); err != nil {
		return nil, invalid("invalid login id: " + protocol.ClipTo(p.LoginID, 200))
	}
	return list{"status": "notFound"}, nil
}

func (s *Server) logout(ctx context.Context, r *call) (any, error) {
	_, err := providerService(ctx, s, func(ctx context.Context, c heddlev1.ProviderServiceClient) (*heddlev1.LogoutResponse, error) {
		return c.Logout(ctx, &heddlev1.LogoutRequest{})
	})
	if err != nil {
		return nil, err
	}
	r.then(func() { s.accountChanged(nil) })
	return list{}, nil
}
