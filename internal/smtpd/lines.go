package smtpd

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

var (
	errBareLF   = errors.New("a command ends with a bare LF")
	errLongLine = errors.New("a command is too long")
)

// readLine reads a line that ends with CRLF, without it.
func readLine(r *bufio.Reader, most int) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > most:
			return "", errLongLine
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return "", err
		}
		text, ok := bytes.CutSuffix(line, []byte("\r\n"))
		if !ok {
			return "", errBareLF
		}
		return string(text), nil
	}
}

// The states of a [dataReader].
const (
	atBegin  = iota // of a line
	inLine          // elsewhere
	afterCR         // in a line, after CR
	afterDot        // after a dot at the begin of a line, which is not content
	afterDotCR
	atEnd
)

// dataReader reads a mail after DATA, without the dots that the client has added. It ends behind
// CRLF.CRLF and nowhere else.
type dataReader struct {
	r     *bufio.Reader
	state int
	held  []byte // content to return first
}

// Read implements [io.Reader]. A mail that breaks off is [io.ErrUnexpectedEOF].
func (d *dataReader) Read(b []byte) (n int, err error) {
	for n < len(b) {
		if len(d.held) > 0 {
			b[n], d.held = d.held[0], d.held[1:]
			n++
			continue
		}
		if d.state == atEnd {
			break
		}
		if n > 0 && d.r.Buffered() == 0 {
			return n, nil
		}
		c, err := d.r.ReadByte()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return n, err
		}
		switch {
		case d.state == atBegin && c == '.':
			d.state = afterDot
			continue
		case d.state == afterDot && c == '\r':
			d.state = afterDotCR
			continue
		case d.state == afterDotCR && c == '\n':
			d.state = atEnd
			continue
		case d.state == afterDotCR:
			d.held = []byte{c}
			b[n] = '\r'
			n++
			d.state = next(afterCR, c)
			continue
		}
		b[n] = c
		n++
		d.state = next(d.state, c)
	}
	if n == 0 && d.state == atEnd {
		return 0, io.EOF
	}
	return n, nil
}

// next returns the state after a byte of content.
func next(state int, c byte) int {
	switch {
	case c == '\r':
		return afterCR
	case c == '\n' && state == afterCR:
		return atBegin
	}
	return inLine
}
