package jsonrpc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
)

// MaxMessage is the size of the largest message that is read, in bytes. The
// text of one turn may have 1,048,576 characters, each escaped.
const MaxMessage = 16 << 20

// headSize is how much of an oversized message is kept to find its id.
const headSize = 4 << 10

// Lines is a Stream of one JSON object per line.
type Lines struct {
	r     *bufio.Reader
	w     io.Writer
	buf   []byte
	out   []byte
	limit int
	close func() error
	once  sync.Once
	err   error
}

// NewLines reads lines from r and writes them to w; closeFn ends both.
func NewLines(r io.Reader, w io.Writer, closeFn func() error) *Lines {
	return &Lines{r: bufio.NewReaderSize(r, 64<<10), w: w, limit: MaxMessage, close: closeFn}
}

// Limit sets the size of the largest line that is read, in place of MaxMessage.
func (l *Lines) Limit(n int) { l.limit = n }

// Read returns the next line that is not blank.
func (l *Lines) Read() ([]byte, error) {
	for {
		line, err := l.line()
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(line)) > 0 {
			return line, nil
		}
	}
}

func (l *Lines) line() ([]byte, error) {
	l.buf = l.buf[:0]
	if cap(l.buf) > 1<<20 {
		l.buf = nil
	}
	for {
		part, err := l.r.ReadSlice('\n')
		if len(l.buf)+len(part) > l.limit {
			head := append(l.buf, part...)
			head = bytes.Clone(head[:min(len(head), headSize)])
			l.buf = nil
			return nil, l.skip(err, head)
		}
		l.buf = append(l.buf, part...)
		switch {
		case err == nil:
			return l.buf, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(l.buf) > 0:
			return l.buf, nil
		default:
			return nil, err
		}
	}
}

// skip reads up to the end of the line.
func (l *Lines) skip(err error, head []byte) error {
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = l.r.ReadSlice('\n')
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return &TooLargeError{Limit: l.limit, Head: head}
}

// Write sends the messages as lines in one write.
func (l *Lines) Write(messages [][]byte) error {
	l.out = l.out[:0]
	if cap(l.out) > 1<<20 {
		l.out = nil
	}
	for _, m := range messages {
		l.out = append(l.out, m...)
		l.out = append(l.out, '\n')
	}
	_, err := l.w.Write(l.out)
	return err
}

// Close ends the stream once.
func (l *Lines) Close() error {
	l.once.Do(func() {
		if l.close != nil {
			l.err = l.close()
		}
	})
	return l.err
}
