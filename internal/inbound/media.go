package inbound

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/blob"
	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/netguard"
)

const (
	mediaLimit   = 25 << 20 // bytes
	mediaTimeout = 30 * time.Second
	mediaHops    = 5
	// mediaTries is how often a failed fetch delays the message; after that
	// it goes on with a placeholder.
	mediaTries = 3
)

// fetchMedia gets the attachments that are only promised so far, into the blob
// store. What cannot be had becomes a placeholder with the reason, because the
// text must arrive.
func (s *Service) fetchMedia(ctx context.Context, w *work) error {
	source, fetches := w.adapter.(channel.MediaSource)
	list := w.attachments()
	for i := range list {
		att := &list[i]
		if att.URL == "" || w.files[i].Key != "" {
			continue
		}
		if !fetches {
			att.Error = "the channel does not say how to fetch this file"
			continue
		}
		ref, err := s.fetch(ctx, source.MediaRequest(*att, s.credentials(w)), att)
		if err == nil {
			w.files[i] = ref
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failed, ok := errors.AsType[*mediaError](err)
		if !ok || !failed.final && w.attempt < mediaTries {
			return fmt.Errorf("fetch attachment %d: %w", i+1, err)
		}
		att.Error = failed.message
		s.log.WarnContext(ctx, "an attachment could not be fetched", "channel", w.event.Channel, "event", w.event.ID, "attachment", i+1, "error", err)
	}
	return nil
}

// mediaError is a download that failed at the other end.
type mediaError struct {
	message string // for agents
	cause   error  // for the log; may be nil
	final   bool   // another try will not mend it
}

func (e *mediaError) Error() string {
	if e.cause == nil {
		return e.message
	}
	return e.message + ": " + e.cause.Error()
}

func (e *mediaError) Unwrap() error { return e.cause }

// fetch downloads a file. Each hop must be https on an allowed host. Credentials go to
// the first host only, and only if it is one that asks for them. An error that is not
// a [*mediaError] is ours.
func (s *Service) fetch(ctx context.Context, m channel.MediaRequest, att *channel.Attachment) (blob.Ref, error) {
	limited, cancel := context.WithTimeout(ctx, mediaTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(limited, http.MethodGet, m.URL, nil)
	if err != nil {
		return blob.Ref{}, &mediaError{message: "the file's address is malformed", final: true}
	}
	if err := allowed(req.URL, m.Hosts); err != nil {
		return blob.Ref{}, err
	}
	if allowed(req.URL, m.HeaderHosts) == nil {
		maps.Copy(req.Header, m.Header)
	}
	left := false
	client := http.Client{
		Transport: s.media,
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if len(via) > mediaHops {
				return &mediaError{message: "the file's address redirects too often", final: true}
			}
			if left = left || !strings.EqualFold(next.URL.Host, via[0].URL.Host); left {
				for name := range m.Header {
					next.Header.Del(name)
				}
			}
			// It would tell one host the other's address, and what signs it.
			next.Header.Del("Referer")
			err := allowed(next.URL, m.Hosts)
			if err != nil && m.SignIn != "" {
				return &mediaError{message: m.SignIn, cause: err, final: true}
			}
			return err
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return blob.Ref{}, unreachable(err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return blob.Ref{}, &mediaError{message: "the provider answered " + resp.Status}
	case resp.StatusCode != http.StatusOK:
		return blob.Ref{}, &mediaError{message: "the provider answered " + resp.Status, final: true}
	}
	from := &download{from: resp.Body}
	content := bufio.NewReader(from)
	head, _ := content.Peek(512) // an error comes again when the rest is read
	if m.SignIn != "" && strings.HasPrefix(http.DetectContentType(head), "text/html") {
		return blob.Ref{}, &mediaError{message: m.SignIn, final: true}
	}
	ref, err := s.blob.Put(ctx, content) // the time that our own store takes is not the provider's
	if from.failed != nil {
		return blob.Ref{}, from.failed
	}
	if err != nil {
		return blob.Ref{}, fmt.Errorf("store attachment: %w", err)
	}
	// The key is the content's digest. What has another one is stored and never
	// named.
	if att.SHA256 != "" && !strings.EqualFold(att.SHA256, ref.Key) {
		return blob.Ref{}, &mediaError{message: "the file is not the one that was announced: its checksum differs"}
	}
	att.ContentType = sniff(head, att.ContentType)
	if att.Name == "" {
		att.Name = mediaName(resp, att.ContentType)
	}
	return ref, nil
}

// download reads a response within the limit, and keeps what went wrong with it
// apart from what goes wrong with storing it.
type download struct {
	from   io.Reader
	size   int
	failed *mediaError
}

func (d *download) Read(p []byte) (int, error) {
	n, err := d.from.Read(p)
	d.size += n
	switch {
	case d.size > mediaLimit:
		d.failed = &mediaError{message: fmt.Sprintf("the file is larger than %d MB", mediaLimit>>20), final: true}
		return n, d.failed
	case err != nil && err != io.EOF:
		d.failed = &mediaError{message: "the download broke off", cause: err}
		return n, d.failed
	}
	return n, err
}

// unreachable is a request that got no answer. The error must not repeat the
// address, which may hold a signature.
func unreachable(err error) error {
	if m, ok := errors.AsType[*mediaError](err); ok {
		return m
	}
	if _, ok := errors.AsType[*netguard.AddressError](err); ok {
		return &mediaError{message: "the file's address is not a public one", cause: withoutURL(err), final: true}
	}
	return &mediaError{message: "the provider could not be reached", cause: withoutURL(err)}
}

func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// allowed checks one hop against the hosts of the provider.
func allowed(u *url.URL, hosts []string) error {
	if u.Scheme != "https" || u.User != nil {
		return &mediaError{message: "the file's address is not plain https", final: true}
	}
	host := strings.ToLower(u.Host)
	if u.Port() == "443" {
		host = strings.TrimSuffix(host, ":443")
	}
	for _, h := range hosts {
		if host == h || strings.HasPrefix(h, ".") && strings.HasSuffix(host, h) && len(host) > len(h) {
			return nil
		}
	}
	return &mediaError{message: "the file's address is not one of the provider's hosts", final: true}
}

// sniff trusts the bytes over the label. Where the bytes tell little, the label
// stands, unless it is of something that a browser would run.
func sniff(head []byte, declared string) string {
	found := http.DetectContentType(head)
	t, _, err := mime.ParseMediaType(declared)
	if err != nil {
		return found
	}
	kind, _, _ := mime.ParseMediaType(found)
	switch kind {
	case "application/octet-stream":
		if strings.HasPrefix(t, "text/") || strings.Contains(t, "xml") || strings.Contains(t, "html") || strings.Contains(t, "script") {
			return found
		}
		return t
	case "text/plain":
		switch t {
		case "text/vcard", "text/x-vcard", "text/directory", "text/calendar", "text/csv", "application/json":
			return t
		}
	}
	return found
}

// extensions are the ones that people know; the system's table has stranger
// ones first.
var extensions = [...][2]string{
	{"image/jpeg", ".jpg"}, {"image/png", ".png"}, {"image/gif", ".gif"}, {"image/webp", ".webp"}, {"image/heic", ".heic"},
	{"video/mp4", ".mp4"}, {"video/3gpp", ".3gp"}, {"video/quicktime", ".mov"}, {"video/webm", ".webm"},
	{"audio/mpeg", ".mp3"}, {"audio/amr", ".amr"}, {"audio/mp4", ".m4a"}, {"audio/ogg", ".ogg"}, {"audio/wave", ".wav"},
	{"application/pdf", ".pdf"}, {"text/plain", ".txt"}, {"text/vcard", ".vcf"}, {"text/x-vcard", ".vcf"}, {"text/calendar", ".ics"},
}

// mediaName is the name the provider gives, or one made from the type.
func mediaName(resp *http.Response, contentType string) string {
	if _, params, err := mime.ParseMediaType(resp.Header.Get("Content-Disposition")); err == nil && params["filename"] != "" {
		return path.Base(strings.ReplaceAll(params["filename"], `\`, "/"))
	}
	t, _, _ := mime.ParseMediaType(contentType)
	for _, e := range extensions {
		if e[0] == t {
			return "attachment" + e[1]
		}
	}
	return "attachment"
}
