package protocol

import (
	"encoding/json"
	"errors"
)

// LoginParams log in. Only a key is taken here.
type LoginParams struct {
	Type   string
	APIKey string
}

var loginTypes = []string{"apiKey", "chatgpt", "chatgptDeviceCode", "chatgptAuthTokens", "amazonBedrock", "amazonBedrockAccessKeys"}

type loginBrand string

func (loginBrand) Variants() []string { return []string{"codex", "chatgpt"} }

func (p *LoginParams) decodeWire(raw []byte) error {
	tag, err := tagOf(raw, "LoginAccountParams", loginTypes)
	if err != nil {
		return err
	}
	p.Type = tag
	switch tag {
	case "apiKey":
		var f struct {
			APIKey string `wire:"apiKey"`
		}
		_, err = Decode(raw, &f)
		p.APIKey = f.APIKey
	case "chatgpt":
		_, err = Decode(raw, &struct {
			Brand       *loginBrand `wire:"appBrand,opt"`
			Streamlined bool        `wire:"codexStreamlinedLogin,default"`
			Hosted      bool        `wire:"useHostedLoginSuccessPage,default"`
		}{})
	case "chatgptAuthTokens":
		_, err = Decode(raw, &struct {
			Token   string  `wire:"accessToken"`
			Account string  `wire:"chatgptAccountId"`
			Plan    *string `wire:"chatgptPlanType,opt"`
		}{})
	case "amazonBedrock":
		_, err = Decode(raw, &struct {
			Key    string `wire:"apiKey"`
			Region string `wire:"region"`
		}{})
	case "amazonBedrockAccessKeys":
		_, err = Decode(raw, &struct {
			ID      string  `wire:"accessKeyId"`
			Secret  string  `wire:"secretAccessKey"`
			Session *string `wire:"sessionToken,opt"`
			Region  string  `wire:"region"`
		}{})
	}
	return err
}

// LoginCancelParams give a login up.
type LoginCancelParams struct {
	LoginID string `wire:"loginId"`
}

// ProviderWriteParams change the table of a provider.
type ProviderWriteParams struct {
	Settings ProviderPatch `wire:"settings"`
}

func (ProviderWriteParams) refuseUnknown() {}

// ProviderDefaultParams choose the default provider.
type ProviderDefaultParams struct {
	ProviderID string `wire:"providerId"`
}

// OptionalText is a text that may be absent or null, which are not the same.
type OptionalText struct {
	Set, Null bool
	Value     string
}

func (o *OptionalText) decodeWire(raw []byte) error {
	if kindOf(raw) == 'n' {
		o.Null = true
		return nil
	}
	if kindOf(raw) != '"' {
		return wrongType(raw, "a string")
	}
	o.Set = true
	return json.Unmarshal(raw, &o.Value)
}

// ProviderPatch is a change of a provider; only those of the type customGateway
// are made here.
type ProviderPatch struct {
	Type       string
	ProviderID *string
	Name       *string
	BaseURL    OptionalText
	EnvKey     OptionalText
}

var patchTypes = []string{"customGateway", "bedrock", "gcp"}

// givenText is a text that may be absent but not null.
type givenText struct{ value *string }

func (g *givenText) decodeWire(raw []byte) error {
	if kindOf(raw) != '"' {
		return wrongType(raw, "a string")
	}
	return json.Unmarshal(raw, &g.value)
}

type gatewayPatch struct {
	ProviderID *string      `wire:"providerId,opt"`
	Name       givenText    `wire:"name,default"`
	BaseURL    OptionalText `wire:"baseUrl,default"`
	EnvKey     OptionalText `wire:"envKey,default"`
}

func (gatewayPatch) refuseUnknown() {}

type bedrockID string

func (bedrockID) Variants() []string { return []string{"amazon-bedrock", "amazon-bedrock-runtime"} }

type bedrockPatch struct {
	ProviderID bedrockID    `wire:"providerId"`
	Region     OptionalText `wire:"region,default"`
	Profile    OptionalText `wire:"profile,default"`
}

func (bedrockPatch) refuseUnknown() {}

type gcpID string

func (gcpID) Variants() []string { return []string{"gcp"} }

type gcpPatch struct {
	ProviderID     gcpID        `wire:"providerId"`
	ProjectID      OptionalText `wire:"projectId,default"`
	Location       OptionalText `wire:"location,default"`
	CredentialFile OptionalText `wire:"credentialFile,default"`
}

func (gcpPatch) refuseUnknown() {}

func (p *ProviderPatch) decodeWire(raw []byte) error {
	tag, err := tagOf(raw, "ProviderSettingsPatch", patchTypes)
	if err != nil {
		return err
	}
	p.Type = tag
	rest := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &rest); err != nil {
		return errors.New("settings cannot be read")
	}
	delete(rest, "type")
	body, err := json.Marshal(rest)
	if err != nil {
		return err
	}
	switch tag {
	case "bedrock":
		_, err = Decode(body, &bedrockPatch{})
	case "gcp":
		_, err = Decode(body, &gcpPatch{})
	default:
		var f gatewayPatch
		_, err = Decode(body, &f)
		p.ProviderID, p.Name, p.BaseURL, p.EnvKey = f.ProviderID, f.Name.value, f.BaseURL, f.EnvKey
	}
	return err
}

// EnablementParams turn switches on or off.
type EnablementParams struct {
	Enablement map[string]bool `wire:"enablement"`
}

// MockParams are those of the method that clients try the gate of experimental
// methods with.
type MockParams struct {
	Value *string `wire:"value,opt"`
}
