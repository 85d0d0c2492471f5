package protocol

import (
	"encoding/json"
	"fmt"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// UserInput is one part of a turn's input.
type UserInput struct {
	Type         string
	Text         string
	TextElements json.RawMessage
	URL          string
	Path         string
	Name         string
	// Detail is how closely the model is to look at an image, empty when not said.
	Detail string
}

var inputTypes = []string{"text", "image", "localImage", "audio", "localAudio", "skill", "mention"}

// ImageDetail says how closely the model is to look at an image.
type ImageDetail string

// Variants implements the enumeration.
func (ImageDetail) Variants() []string { return []string{"auto", "low", "high", "original"} }

func detailOf(d *ImageDetail) string {
	if d == nil {
		return ""
	}
	return string(*d)
}

func (u *UserInput) decodeWire(raw []byte) error {
	tag, err := tagOf(raw, "UserInput", inputTypes)
	if err != nil {
		return err
	}
	u.Type = tag
	switch tag {
	case "text":
		var f struct {
			Text     string            `wire:"text"`
			Elements []json.RawMessage `wire:"text_elements,default"`
		}
		_, err = Decode(raw, &f)
		u.Text = f.Text
		if len(f.Elements) > 0 {
			u.TextElements, _ = json.Marshal(f.Elements)
		}
	case "image", "audio":
		var f struct {
			URL    string       `wire:"url"`
			Detail *ImageDetail `wire:"detail,opt"`
		}
		_, err = Decode(raw, &f)
		u.URL, u.Detail = f.URL, detailOf(f.Detail)
	case "localImage", "localAudio":
		var f struct {
			Path   string       `wire:"path"`
			Detail *ImageDetail `wire:"detail,opt"`
		}
		_, err = Decode(raw, &f)
		u.Path, u.Detail = f.Path, detailOf(f.Detail)
	case "skill", "mention":
		var f struct {
			Name string `wire:"name"`
			Path string `wire:"path"`
		}
		_, err = Decode(raw, &f)
		u.Name, u.Path = f.Name, f.Path
	}
	return err
}

// ToInput reads a turn's input.
func ToInput(in []UserInput, clientID *string) (*heddlev1.UserMessage, error) {
	msg := &heddlev1.UserMessage{}
	if clientID != nil {
		msg.ClientId = *clientID
	}
	for _, u := range in {
		p := &heddlev1.InputPart{ImageDetail: u.Detail}
		switch u.Type {
		case "text":
			p.Part = &heddlev1.InputPart_Text{Text: u.Text}
			p.TextElements = ToList(u.TextElements)
		case "image":
			p.Part = &heddlev1.InputPart_ImageUrl{ImageUrl: u.URL}
		case "localImage":
			p.Part = &heddlev1.InputPart_LocalImage{LocalImage: u.Path}
		case "skill", "mention":
			p.Part = &heddlev1.InputPart_Reference_{Reference: &heddlev1.InputPart_Reference{Kind: u.Type, Name: u.Name, Path: u.Path}}
		default:
			return nil, fmt.Errorf("input of type %s is not supported", u.Type)
		}
		msg.Parts = append(msg.Parts, p)
	}
	return msg, nil
}

func fromInput(parts []*heddlev1.InputPart) []any {
	out := make([]any, 0, len(parts))
	for _, p := range parts {
		switch c := p.GetPart().(type) {
		case *heddlev1.InputPart_Text:
			elements := []any{}
			if e := p.GetTextElements(); e != nil {
				elements = e.AsSlice()
			}
			out = append(out, map[string]any{"type": "text", "text": c.Text, "text_elements": elements})
		case *heddlev1.InputPart_ImageUrl:
			out = append(out, map[string]any{"type": "image", "url": c.ImageUrl, "detail": opt(p.GetImageDetail())})
		case *heddlev1.InputPart_LocalImage:
			out = append(out, map[string]any{"type": "localImage", "path": c.LocalImage, "detail": opt(p.GetImageDetail())})
		case *heddlev1.InputPart_Reference_:
			out = append(out, map[string]any{"type": c.Reference.GetKind(), "name": c.Reference.GetName(), "path": c.Reference.GetPath()})
		}
	}
	return out
}
