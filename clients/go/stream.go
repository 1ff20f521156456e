package kickstand

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"
)

// stream is the body of an answer. Each read has the timeout of an attempt.
type stream struct {
	from            io.ReadCloser // nil before the answer
	caller, attempt context.Context
	cancel          context.CancelCauseFunc // of the attempt
	timer           *time.Timer
	timeout         time.Duration
	detached        bool // the stream outlives the attempt
}

// newStream returns the stream of an attempt's answer. Its context ends with the timeout.
func newStream(caller context.Context, timeout time.Duration) *stream {
	s := &stream{caller: caller, timeout: timeout}
	s.attempt, s.cancel = context.WithCancelCause(caller)
	s.timer = time.AfterFunc(timeout, func() { s.cancel(&TimeoutError{timeout}) })
	return s
}

// detach ends the timeout of the attempt. From now on each read has the whole timeout, and
// the time between reads is the caller's.
func (s *stream) detach() {
	s.timer.Stop()
	s.detached = true
}

// done ends an attempt.
func (s *stream) done() {
	if !s.detached {
		s.Close()
	}
}

// Read reads the body. Its errors are a [*TimeoutError], a [*ConnectionError] or the context's.
func (s *stream) Read(p []byte) (int, error) {
	if s.detached {
		s.timer.Reset(s.timeout)
		defer s.timer.Stop()
	}
	n, err := s.from.Read(p)
	if err != nil && err != io.EOF {
		err = s.failure(err)
	}
	return n, err
}

// Close ends the transfer.
func (s *stream) Close() error {
	s.timer.Stop()
	s.cancel(nil)
	if s.from == nil {
		return nil
	}
	return s.from.Close()
}

// failure returns the error of an attempt that broke.
func (s *stream) failure(err error) error {
	var timeout *TimeoutError
	var slow interface{ Timeout() bool }
	switch {
	case s.caller.Err() != nil:
		return context.Cause(s.caller)
	case errors.As(context.Cause(s.attempt), &timeout):
		return timeout
	case errors.As(err, &slow) && slow.Timeout():
		return &TimeoutError{s.timeout}
	}
	return &ConnectionError{err}
}

// errCut is an answer that ended early.
var errCut = &ConnectionError{errors.New("the answer was cut short")}

// File is a file or an export as bytes. The caller closes it. A transfer that breaks is an error
// of Read.
type File struct {
	io.ReadCloser
	ContentType string
	Size        int64 // -1: not known
}

// file sends a request and returns the bytes of its answer.
func (c *client) file(ctx context.Context, r request) (*File, error) {
	exported := r.accept != ""
	if !exported {
		r.accept = "*/*"
	}
	var f *File
	err := c.do(ctx, r, func(resp *http.Response, body *stream) error {
		body.detach()
		f = &File{ReadCloser: body, ContentType: resp.Header.Get("Content-Type"), Size: resp.ContentLength}
		if exported {
			f.ReadCloser = &lines{body, '\n'}
		}
		return nil
	})
	if err == errUnchanged {
		err = nil
	}
	return f, err
}

// lines is a body that must end with a line break.
type lines struct {
	*stream
	last byte
}

// Read reads the body.
func (l *lines) Read(p []byte) (int, error) {
	n, err := l.stream.Read(p)
	if n > 0 {
		l.last = p[n-1]
	}
	if err == io.EOF && l.last != '\n' {
		err = errCut
	}
	return n, err
}

// readLine returns the next line that is not blank, or io.EOF after the last.
func readLine(r *bufio.Reader) ([]byte, error) {
	for {
		line, err := r.ReadBytes('\n')
		if err == io.EOF && len(line) > 0 {
			return nil, errCut
		}
		if line = bytes.TrimSpace(line); err != nil || len(line) > 0 {
			return line, err
		}
	}
}

// export yields the records of an NDJSON stream. Until the first record has arrived, failures
// are retried.
func export[T any](ctx context.Context, c *client, r request) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		r.accept = "application/x-ndjson"
		var in *bufio.Reader
		var body *stream
		var line []byte
		err := c.do(ctx, r, func(_ *http.Response, s *stream) error {
			in = bufio.NewReader(s)
			var err error
			if line, err = readLine(in); err != nil && err != io.EOF {
				return err
			}
			s.detach()
			body = s
			if err == io.EOF {
				line = nil
			}
			return nil
		})
		if err != nil {
			yield(zero, err)
			return
		}
		defer body.Close()
		for line != nil {
			var record T
			if err := json.Unmarshal(line, &record); err != nil {
				yield(zero, fmt.Errorf("kickstand: decode a record: %w", err))
				return
			}
			if !yield(record, nil) {
				return
			}
			if line, err = readLine(in); err == io.EOF {
				return
			} else if err != nil {
				yield(zero, err)
				return
			}
		}
	}
}

// Import is an import that is running. Its methods are not for several goroutines at once.
type Import struct {
	body    *stream
	in      *bufio.Reader
	summary *ImportSummary
}

// ImportLine is the result of one record. Of a record that was refused, Problem is set.
type ImportLine struct {
	Line    int      `json:"line"` // from 1
	Status  int      `json:"status"`
	ID      string   `json:"id"`
	Ignored []string `json:"ignored"` // fields that were not applied
	Problem *Problem `json:"problem"`
}

// ImportSummary has the numbers of records. Updated and Unchanged are nil unless the import may
// update records. Skipped has the read-only members that records had, and in how many.
type ImportSummary struct {
	Created   int            `json:"created"`
	Updated   *int           `json:"updated"`
	Unchanged *int           `json:"unchanged"`
	Failed    int            `json:"failed"`
	Skipped   map[string]int `json:"skipped"`
}

// importAll sends records as NDJSON.
func importAll[T any](ctx context.Context, c *client, r request, records iter.Seq[T]) (*Import, error) {
	next, stop := iter.Pull(records)
	return c.importFrom(ctx, r, "application/x-ndjson", &recordReader[T]{next: next, stop: stop})
}

// importFrom sends records as bytes. A reader that is an io.Closer is closed.
func (c *client) importFrom(ctx context.Context, r request, mediaType string, from io.Reader) (*Import, error) {
	body, ok := from.(io.ReadCloser)
	if !ok {
		body = io.NopCloser(from)
	}
	r.stream, r.streamType, r.accept = body, mediaType, "application/x-ndjson"
	imp := &Import{}
	err := c.do(ctx, r, func(_ *http.Response, body *stream) error {
		body.detach()
		imp.body, imp.in = body, bufio.NewReader(body)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return imp, nil
}

// Lines yields the results of the records in their order. An error ends the loop: a nil error
// comes with each result.
func (i *Import) Lines() iter.Seq2[ImportLine, error] {
	return func(yield func(ImportLine, error) bool) {
		defer i.Close()
		for {
			text, err := readLine(i.in)
			if err == io.EOF {
				err = errCut // the summary is the last line
			}
			var line struct {
				ImportLine
				Summary *ImportSummary `json:"summary"`
			}
			if err == nil {
				err = json.Unmarshal(text, &line)
			}
			if err == nil && line.Summary != nil {
				i.summary = line.Summary
				return
			}
			if !yield(line.ImportLine, err) || err != nil {
				return
			}
		}
	}
}

// Summary returns the numbers of records. It is nil until the loop over Lines has ended without
// an error.
func (i *Import) Summary() *ImportSummary { return i.summary }

// Close ends the import's transfer. Records that the server has read may be imported.
func (i *Import) Close() error { return i.body.Close() }

// recordReader reads a sequence as NDJSON.
type recordReader[T any] struct {
	next func() (T, bool)
	stop func()
	rest []byte
}

// Read reads from the sequence.
func (r *recordReader[T]) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		record, ok := r.next()
		if !ok {
			return 0, io.EOF
		}
		text, err := json.Marshal(record)
		if err != nil {
			return 0, fmt.Errorf("encode a record: %w", err)
		}
		r.rest = append(text, '\n')
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close ends the sequence.
func (r *recordReader[T]) Close() error {
	r.stop()
	return nil
}

// Attachment returns a file for [MessageCreate].
func Attachment(name, contentType string, content []byte) MessageAttachmentInput {
	return MessageAttachmentInput{Name: name, ContentType: Some(contentType), Content: content}
}
