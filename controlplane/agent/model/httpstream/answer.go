package httpstream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/tidwall/gjson"
)

// maxAnswer bounds the bytes of one answer, and with it what can be held of one.
const maxAnswer = 64 << 20

// lingerLimit is how long an answer that is complete may stay open for what
// comes behind its end, such as the usage.
const lingerLimit = 3 * time.Second

// Answer is an answer that is being read.
type Answer struct {
	res *http.Response
	w   *watchdog
}

// NewAnswer returns an answer without a watch over its silence.
func NewAnswer(res *http.Response) *Answer { return &Answer{res: res} }

// Linger says that everything that matters has been read: the rest is waited for
// only shortly.
func (a *Answer) Linger() {
	if a.w != nil {
		a.w.limit(lingerLimit)
	}
}

// Events calls handle for every event until it says that the answer ends. open is
// the error of an answer that ends before.
func (a *Answer) Events(handle func(name string, data []byte) (end bool, err error), open error) error {
	sse := ssestream.NewDecoder(a.res)
	seen := false
	for sse.Next() {
		ev := sse.Event()
		seen = true
		end, err := handle(ev.Type, ev.Data)
		if end || err != nil {
			return err
		}
	}
	if err := sse.Err(); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if ct := a.res.Header.Get("Content-Type"); !seen && ct != "" && !strings.Contains(ct, "event-stream") {
		return fmt.Errorf("the service answered with content type %.80q instead of an event stream", ct)
	}
	return open
}

var errTooLong = errors.New("the answer is longer than 64 MiB")

// watchedBody tells the watchdog about every read, and bounds the whole.
type watchedBody struct {
	io.ReadCloser
	w    *watchdog
	read int64
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.w.alive()
	}
	if b.read += int64(n); b.read > maxAnswer {
		return 0, errTooLong
	}
	return n, err
}

// Text is a string member of a JSON object, with invalid UTF-8 replaced: texts
// are stored as protobuf strings.
func Text(data []byte, path string) string {
	return strings.ToValidUTF8(gjson.GetBytes(data, path).Str, "\uFFFD")
}

// Ended reports whether an error of Events is only that the rest did not come in
// time or the service closed early, rather than that the caller gave up.
func (a *Answer) Ended(err error) bool {
	return a.w == nil || a.w.ctx.Err() == nil || errors.Is(a.w.cause(), errIdle) || errors.Is(err, errIdle)
}
