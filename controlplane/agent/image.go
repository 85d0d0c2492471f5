package agent

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxImageBytes bounds an image for the model.
const maxImageBytes = 20 << 20

// imageCall shows a file to the model, as the thread's sandbox sees it.
func (t *turn) imageCall(c *heddlev1.ToolCall, args *tool.ViewImage) *call {
	return &call{req: c, do: func(ctx context.Context) result {
		settings := t.settings()
		path := join(settings.GetCwd(), args.Path)
		data, mime, err := t.readImage(ctx, path, settings.GetSandbox())
		if err != nil {
			return text(fmt.Sprintf("unable to view image at `%s`: %v", path, err))
		}
		item := t.begunItem(c.GetCallId())
		item.Content = &heddlev1.Item_ImageView{ImageView: &heddlev1.ImageView{Path: path}}
		started := itemStarted(item)
		item.Status, item.CompletedAtMs = heddlev1.ItemStatus_ITEM_STATUS_COMPLETED, t.agent.now()
		t.record(started, itemCompleted(item))
		return result{parts: []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_ImageUrl{
			ImageUrl: "data:" + mime + ";base64," + base64.StdEncoding.EncodeToString(data)}}}}
	}}
}

func (t *turn) readImage(ctx context.Context, path string, policy *heddlev1.SandboxPolicy) (data []byte, mime string, err error) {
	res, err := t.lt.act(ctx, &executorv1.Action{
		Policy: proto.CloneOf(policy), Workspace: t.settings().GetCwd(),
		Kind: &executorv1.Action_ReadFile{ReadFile: &executorv1.ReadFile{Path: path, MaxBytes: maxImageBytes}},
	})
	if err != nil {
		return nil, "", err
	}
	if why := res.GetError(); why != nil {
		return nil, "", fmt.Errorf("%s", why.GetMessage())
	}
	if res.GetFileContent().GetTruncated() {
		return nil, "", fmt.Errorf("the file is larger than %d bytes", maxImageBytes)
	}
	data = res.GetFileContent().GetData()
	mime = http.DetectContentType(data)
	if !strings.HasPrefix(mime, "image/") {
		return nil, "", fmt.Errorf("the file is not an image (%s)", mime)
	}
	return data, mime, nil
}

// withImages reads the local images of an input that came without their bytes.
// One that cannot be read is said to the client and left out.
func (t *turn) withImages(in *heddlev1.UserMessage) *heddlev1.UserMessage {
	missing := false
	for _, p := range in.GetParts() {
		missing = missing || (p.GetLocalImage() != "" && len(p.GetImageData()) == 0)
	}
	if !missing {
		return in
	}
	in = proto.CloneOf(in)
	readable := &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY, Network: heddlev1.NetworkMode_NETWORK_MODE_OFF}
	if in.GetFromAgent() { // it sees no more than its own tools show it
		readable = t.settings().GetSandbox()
	}
	for _, p := range in.GetParts() {
		if p.GetLocalImage() == "" || len(p.GetImageData()) > 0 {
			continue
		}
		data, mime, err := t.readImage(t.ctx, p.GetLocalImage(), readable)
		if err != nil {
			t.record(warningRaised(t.id(), fmt.Sprintf("image %s was not sent: %v", p.GetLocalImage(), err)))
			continue
		}
		p.ImageData, p.ImageMime = data, mime
	}
	return in
}
