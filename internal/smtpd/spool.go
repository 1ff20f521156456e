package smtpd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// spool holds a mail while it arrives: in memory, and in a file if it is large, so that slow
// clients hold no memory.
type spool struct {
	s       *Service
	size    int64
	head    bytes.Buffer // all of a small mail
	file    *os.File
	counted int64 // of Service.spooled
}

func (s *Service) newSpool() *spool { return &spool{s: s} }

// brokenOff is the error of a mail without its end.
type brokenOff struct{ err error }

func (e *brokenOff) Error() string { return "the mail breaks off: " + e.err.Error() }

var errEndless = errors.New("it does not end")

var errSize = &refusal{552, "5.3.4", "the mail is too large", "size"}

// fill reads a mail to its end, also after an error of its content or of this server. An error is a
// [brokenOff], a [refusal], or of this server.
func (sp *spool) fill(r io.Reader) (err error) {
	buffer := make([]byte, 32<<10)
	for {
		n, rerr := r.Read(buffer)
		sp.size += int64(n)
		switch {
		case sp.size > 2*sp.s.MaxSize:
			return &brokenOff{errEndless}
		case err != nil:
		case sp.size > sp.s.MaxSize:
			err = errSize
		default:
			err = sp.write(buffer[:n])
		}
		if errors.Is(rerr, io.EOF) {
			return err
		}
		if rerr != nil {
			return &brokenOff{rerr}
		}
	}
}

func (sp *spool) write(b []byte) error {
	if sp.file == nil && sp.size <= spoolMemory {
		sp.head.Write(b)
		return nil
	}
	sp.counted += int64(len(b))
	if sp.s.spooled.Add(int64(len(b))) > maxSpool {
		return &refusal{452, "4.3.1", "too many large mails at once, try again later", "spool"}
	}
	if sp.file == nil {
		file, err := os.CreateTemp(sp.s.SpoolDir, ".smtp-*")
		if err != nil {
			return fmt.Errorf("spool a mail: %w", err)
		}
		os.Remove(file.Name()) // it lives until it is closed; elsewhere close removes it
		sp.file = file
	}
	if _, err := sp.file.Write(b); err != nil {
		return fmt.Errorf("spool a mail: %w", err)
	}
	return nil
}

// load returns the mail behind a prefix.
func (sp *spool) load(prefix string) ([]byte, error) {
	body := make([]byte, len(prefix)+int(sp.size))
	n := copy(body, prefix)
	n += copy(body[n:], sp.head.Bytes())
	if sp.file == nil {
		return body[:n], nil
	}
	if _, err := sp.file.ReadAt(body[n:], 0); err != nil {
		return nil, fmt.Errorf("read a spooled mail: %w", err)
	}
	return body, nil
}

// close deletes the mail.
func (sp *spool) close() {
	sp.s.spooled.Add(-sp.counted)
	if sp.file == nil {
		return
	}
	sp.file.Close()
	os.Remove(sp.file.Name()) // fails if it was removed while open
}
