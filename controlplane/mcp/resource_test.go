package mcp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Resources are listed and read; of the tools only those of the allow list are
// offered, less those of the deny list.
func TestResourcesAndAllowList(t *testing.T) {
	server := sdk.NewServer(&sdk.Implementation{Name: "h", Version: "1"}, nil)
	for _, name := range []string{"read", "write", "drop"} {
		sdk.AddTool(server, &sdk.Tool{Name: name}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
			return &sdk.CallToolResult{}, nil, nil
		})
	}
	server.AddResource(&sdk.Resource{Name: "note", URI: "note://one"}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: "note://one", Text: "remember"}}}, nil
	})
	server.AddResource(&sdk.Resource{Name: "slow", URI: "note://slow"}, func(ctx context.Context, _ *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	server.AddResourceTemplate(&sdk.ResourceTemplate{Name: "any", URITemplate: "any://{name}"}, func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
		return &sdk.ReadResourceResult{}, nil
	})
	web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
	defer web.Close()
	set := Start([]Server{{
		Name: "s", URL: web.URL, StartupTimeout: 5 * time.Second, ToolTimeout: 300 * time.Millisecond,
		Enabled: []string{"read", "write"}, Disabled: []string{"write"},
	}}, Host{})
	defer set.Close()
	await(t, set)
	if tools := set.Tools(); len(tools) != 1 || tools[0].Name != "read" {
		t.Errorf("offered: %v", tools)
	}
	for _, name := range []string{"write", "drop"} {
		if _, err := set.Call(t.Context(), "s", &Call{Tool: name}); err == nil || !strings.Contains(err.Error(), "disabled by the config") {
			t.Errorf("%s: %v", name, err)
		}
	}
	described := set.Describe(t.Context(), "", false)[0]
	if len(described.GetResources()) != 2 || len(described.GetResourceTemplates()) != 1 {
		t.Errorf("resources %v, templates %v", described.GetResources(), described.GetResourceTemplates())
	}
	if brief := set.Describe(t.Context(), "", true)[0]; len(brief.GetResources()) != 0 {
		t.Errorf("resources where only tools were asked for: %v", brief.GetResources())
	}
	if got, err := set.Read(t.Context(), "s", "note://one"); err != nil || len(got) != 1 || got[0].GetFields()["text"].GetStringValue() != "remember" {
		t.Errorf("read: %v, %v", got, err)
	}
	for uri, text := range map[string]string{"note://none": "note://none", "note://slow": "did not answer within 300ms"} {
		if _, err := set.Read(t.Context(), "s", uri); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("read %s: %v", uri, err)
		}
	}
}
