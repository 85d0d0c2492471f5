package appserver

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"
)

// catalog runs a call of the catalog service that may be repeated.
func catalog[T any](ctx context.Context, s *Server, call func(context.Context, heddlev1.CatalogServiceClient) (T, error)) (out T, err error) {
	err = s.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		out, err = call(ctx, heddlev1.NewCatalogServiceClient(cc))
		return err
	})
	return out, err
}

func (s *Server) skillsList(ctx context.Context, _ *call, p *protocol.CwdsParams) (any, error) {
	resp, err := catalog(ctx, s, func(ctx context.Context, c heddlev1.CatalogServiceClient) (*heddlev1.ListSkillsResponse, error) {
		return c.ListSkills(ctx, &heddlev1.ListSkillsRequest{Cwds: s.absolutes(p.Cwds)})
	})
	if err != nil {
		return nil, err
	}
	data := []any{}
	for _, f := range resp.GetFolders() {
		skills, problems := []any{}, []any{}
		for _, sk := range f.GetSkills() {
			entry := list{
				"name": sk.GetName(), "description": sk.GetDescription(), "path": sk.GetPath(), "scope": sk.GetScope(), "enabled": sk.GetEnabled(),
				"shortDescription": nil, "interface": nil, "dependencies": nil, "pluginId": nil,
			}
			if short := sk.GetShortDescription(); short != "" {
				entry["shortDescription"] = short
			}
			skills = append(skills, entry)
		}
		for _, e := range f.GetErrors() {
			problems = append(problems, list{"path": e.GetPath(), "message": e.GetMessage()})
		}
		data = append(data, list{"cwd": f.GetCwd(), "skills": skills, "errors": problems})
	}
	return list{"data": data}, nil
}

// skillsConfigWrite switches one skill in the config file.
func (s *Server) skillsConfigWrite(ctx context.Context, _ *call, p *protocol.SkillsConfigParams) (any, error) {
	name, path := text(p.Name), text(p.Path)
	if (name == "") == (path == "") {
		return nil, params("skills/config/write requires exactly one of name and path")
	}
	config, err := s.readConfig(ctx, "")
	if err != nil {
		return nil, err
	}
	table, _ := config.GetConfig().AsMap()["skills"].(map[string]any)
	entries, _ := table["config"].([]any)
	entries = slices.DeleteFunc(entries, func(v any) bool {
		e, _ := v.(map[string]any)
		return name != "" && e["name"] == name || path != "" && e["path"] == path
	})
	if !p.Enabled {
		entry := map[string]any{"enabled": false}
		if name != "" {
			entry["name"] = name
		} else {
			entry["path"] = path
		}
		entries = append(entries, entry)
	}
	edit := &heddlev1.ConfigEdit{Key: "skills.config"}
	if len(entries) > 0 {
		if edit.Value, err = structpb.NewValue(entries); err != nil {
			return nil, invalid(err.Error())
		}
	}
	_, err = catalog(ctx, s, func(ctx context.Context, c heddlev1.CatalogServiceClient) (*heddlev1.WriteConfigResponse, error) {
		return c.WriteConfig(ctx, &heddlev1.WriteConfigRequest{Edits: []*heddlev1.ConfigEdit{edit}})
	})
	if err != nil {
		return nil, err
	}
	s.broadcast(note{method: "skills/changed", all: true, params: list{}}, nil)
	return list{"effectiveEnabled": p.Enabled}, nil
}

// maxSkillRoots bounds the folders that a client may name.
const maxSkillRoots = 64

// skillsRootsSet names further folders with skills, in place of those that were
// named before, until this server ends.
func (s *Server) skillsRootsSet(ctx context.Context, _ *call, p *protocol.SkillsRootsParams) (any, error) {
	if len(p.Roots) > maxSkillRoots {
		return nil, invalid(fmt.Sprintf("%d roots were given, the limit is %d", len(p.Roots), maxSkillRoots))
	}
	roots := []any{}
	for _, root := range p.Roots {
		if strings.Contains(string(root), "\x00") || !utf8.ValidString(string(root)) {
			return nil, invalid("a root is no path")
		}
		roots = append(roots, path.Clean(string(root)))
	}
	if err := s.session.Override(ctx, map[string]any{"skills.extra_roots": roots}); err != nil {
		return nil, err
	}
	s.broadcast(note{method: "skills/changed", all: true, params: list{}}, nil)
	return list{}, nil
}

func (s *Server) featureList(ctx context.Context, _ *call, p *protocol.FeatureListParams) (any, error) {
	if err := s.someLoaded(p.Thread); err != nil {
		return nil, err
	}
	resp, err := catalog(ctx, s, func(ctx context.Context, c heddlev1.CatalogServiceClient) (*heddlev1.ListFeaturesResponse, error) {
		return c.ListFeatures(ctx, &heddlev1.ListFeaturesRequest{})
	})
	if err != nil {
		return nil, err
	}
	page, next, err := pageOf(resp.GetFeatures(), p.Cursor, p.Limit, maxPage)
	if err != nil {
		return nil, err
	}
	data := []any{}
	for _, f := range page {
		data = append(data, list{
			"name": f.GetName(), "stage": f.GetStage(), "displayName": f.GetDisplayName(), "description": f.GetDescription(), "announcement": nil,
			"enabled": f.GetEnabled(), "defaultEnabled": f.GetDefaultEnabled(),
		})
	}
	return list{"data": data, "nextCursor": next}, nil
}

// modes are the collaboration modes; a thread's model and effort hold in both.
func modes() []any {
	return []any{
		list{"name": "Plan", "mode": "plan", "model": nil, "reasoning_effort": nil},
		list{"name": "Default", "mode": "default", "model": nil, "reasoning_effort": nil},
	}
}
