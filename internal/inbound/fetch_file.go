package inbound

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
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
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

const (
	mediaLimit        = 25 << 20 // bytes
	mediaTimeout      = 30 * time.Second
	maxMediaRedirects = 5
	// maxMediaRetries is how often a failed download is retried.
	maxMediaRetries = 3
	// mediaPerLane is the number of concurrent downloads per connection and host, mediaAtOnce
	// the total in this process. It limits the effect of slow hosts.
	mediaPerLane = 2
	mediaAtOnce  = 128
)

// fetchPayload is the payload of a [desk.FetchKind] job: a file and the source of its
// credentials.
type fetchPayload struct {
	Channel      string `json:"channel"`
	ConnectionID string `json:"connection_id,omitempty"`
	// ByDeployment means that the deployment's secret verified the address.
	ByDeployment bool   `json:"by_deployment,omitempty"`
	Name         string `json:"name,omitempty"`
	ContentType  string `json:"content_type,omitempty"`
	URL          string `json:"url,omitempty"`
	Lookup       string `json:"lookup,omitempty"`
	SHA256       string `json:"sha256,omitempty"`
}

func (p *fetchPayload) attachment() channel.Attachment {
	return channel.Attachment{Name: p.Name, ContentType: p.ContentType, URL: p.URL, Lookup: p.Lookup, SHA256: p.SHA256}
}

// fetchJobs returns the download jobs for attachments without content. Attachments that the
// channel cannot download get an Error.
func (s *Service) fetchJobs(o channel.Source, verifiedBy string, list []channel.Attachment) ([]desk.FetchJob, error) {
	if len(list) == 0 {
		return nil, nil
	}
	source := s.byName[o.Channel]
	_, fetches := source.(channel.MediaSource)
	_, locates := source.(channel.MediaLocator)
	promises := make([]desk.FetchJob, len(list))
	for i := range list {
		a := &list[i]
		if a.URL == "" && a.Lookup == "" || a.Error != "" {
			continue
		}
		if !fetches || a.URL == "" && !locates {
			a.Error = "the channel cannot download this file"
			continue
		}
		payload, err := json.Marshal(fetchPayload{
			Channel: o.Channel, ConnectionID: o.ConnectionID, ByDeployment: strings.HasPrefix(verifiedBy, byDeployment),
			Name: a.Name, ContentType: a.ContentType, URL: a.URL, Lookup: a.Lookup, SHA256: a.SHA256,
		})
		if err != nil {
			return nil, fmt.Errorf("describe attachment %d: %w", i+1, err)
		}
		promises[i] = desk.FetchJob{Lane: mediaLane(o, a.URL), Payload: payload}
	}
	return promises, nil
}

// mediaLane returns the lane of a download: its connection and host.
func mediaLane(o channel.Source, address string) string {
	host := "lookup"
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		host = channel.BoundedID(strings.ToLower(u.Host), 100)
	}
	return cmp.Or(o.ConnectionID, o.OrganizationID) + " " + o.Channel + " " + host
}

// fetchFile runs a [desk.FetchKind] job. A failure of our own storage does not count as an
// attempt; see [queue.Worker].
func (s *Service) fetchFile(ctx context.Context, j *queue.Job) error {
	pending, err := s.desk.FilePending(ctx, s.db, j.ID)
	if err != nil {
		return err
	}
	if !pending {
		return nil // its message was deleted
	}
	var p fetchPayload
	if err := json.Unmarshal(j.Payload, &p); err != nil {
		return &mediaError{message: "the file's address was not stored", cause: err, final: true}
	}
	var c *connection.Connection
	if p.ConnectionID != "" {
		if c, err = s.connections.ByID(ctx, p.ConnectionID); err != nil {
			return fmt.Errorf("load connection: %w", err)
		}
	}
	source, ok := s.byName[p.Channel].(channel.MediaSource)
	if !ok {
		return &mediaError{message: "the channel cannot download this file", final: true}
	}
	credentials, file := s.credentialsOf(c, p.Channel, p.ByDeployment), p.attachment()
	if file.Lookup != "" {
		if file, err = s.locate(ctx, source, file, credentials, j.Attempt); err != nil {
			return err
		}
	}
	ref, err := s.fetch(ctx, source.MediaRequest(file, credentials), &file)
	if err != nil {
		return err
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		if err := s.desk.CompleteFileTx(ctx, tx, j.ID, desk.File{Ref: ref, Name: file.Name, ContentType: file.ContentType}); err != nil {
			return err
		}
		return j.FinishTx(ctx, tx)
	})
}

// locate requests the URL of a file from the provider.
func (s *Service) locate(ctx context.Context, source channel.MediaSource, file channel.Attachment, credentials channel.Credentials, failures int) (channel.Attachment, error) {
	locator, ok := source.(channel.MediaLocator)
	if !ok {
		return file, &mediaError{message: "the channel cannot download this file", final: true}
	}
	call, why := locator.Locate(file, credentials)
	if call == nil {
		return file, &mediaError{message: why, final: true}
	}
	got := s.newResponses()
	defer got.release()
	answer, err := s.call(ctx, call, time.Now().Add(providerTimeout), got)
	if d, ok := source.(channel.RetryDecider); ok && err == nil && failures < maxMediaRetries && d.ShouldRetry(answer) {
		err = retryLater(answer, s.db.Now())
	}
	if err != nil && (ctx.Err() != nil || failures < maxMediaRetries) {
		return file, err
	}
	if file = locator.Located(file, answer); file.Error != "" {
		return file, &mediaError{message: file.Error, cause: err, final: true}
	}
	return file, nil
}

// retryFile returns the backoff of a failed download and whether to retry it.
func retryFile(attempt int, err error) (time.Duration, bool) {
	if m, ok := errors.AsType[*mediaError](err); ok {
		return queue.Backoff(attempt), !m.final && attempt <= maxMediaRetries
	}
	return retry(attempt, err)
}

// failFile marks an attachment as unavailable.
func (s *Service) failFile(ctx context.Context, tx *db.Tx, j *queue.Job, cause error) error {
	why := "the file could not be fetched"
	if m, ok := errors.AsType[*mediaError](cause); ok {
		why = m.message
	}
	s.log.WarnContext(ctx, "an attachment could not be fetched", "attachment", j.ID, "error", cause)
	return s.desk.FailFileTx(ctx, tx, j.ID, why)
}

// mediaError is a download that failed on the provider's side.
type mediaError struct {
	message string // for agents
	cause   error  // for the log; may be nil
	final   bool   // a retry will not help
}

func (e *mediaError) Error() string {
	if e.cause == nil {
		return e.message
	}
	return e.message + ": " + e.cause.Error()
}

func (e *mediaError) Unwrap() error { return e.cause }

// fetch downloads a file. Each redirect must stay on https and on an allowed host. Credentials
// are sent to the first host only, if it is one of HeaderHosts. An error other than a
// [*mediaError] is internal.
func (s *Service) fetch(ctx context.Context, m channel.MediaRequest, att *channel.Attachment) (blob.Ref, error) {
	limited, cancel := context.WithTimeout(ctx, mediaTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(limited, http.MethodGet, m.URL, nil)
	if err != nil {
		return blob.Ref{}, &mediaError{message: "the file's address is malformed", final: true}
	}
	if err := checkHost(req.URL, m.Hosts); err != nil {
		return blob.Ref{}, err
	}
	if checkHost(req.URL, m.HeaderHosts) == nil {
		maps.Copy(req.Header, m.Header)
	}
	left := false
	client := http.Client{
		Transport: s.media,
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			if len(via) > maxMediaRedirects {
				return &mediaError{message: "the file's address redirects too often", final: true}
			}
			if left = left || !strings.EqualFold(next.URL.Host, via[0].URL.Host); left {
				for name := range m.Header {
					next.Header.Del(name)
				}
			}
			// The referrer would reveal a signed URL of one host to another.
			next.Header.Del("Referer")
			err := checkHost(next.URL, m.Hosts)
			if err != nil && m.SignIn != "" {
				return &mediaError{message: m.SignIn, cause: err, final: true}
			}
			return err
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return blob.Ref{}, fetchError(err)
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
	head, _ := content.Peek(512) // the next read returns the same error
	if m.SignIn != "" && strings.HasPrefix(http.DetectContentType(head), "text/html") {
		return blob.Ref{}, &mediaError{message: m.SignIn, final: true}
	}
	ref, err := s.blob.Put(ctx, content) // storing does not count against the provider's time limit
	if from.failed != nil {
		return blob.Ref{}, from.failed
	}
	if err != nil {
		return blob.Ref{}, fmt.Errorf("store attachment: %w", err)
	}
	// The key is the content's digest. A blob with another digest stays without a reference.
	if att.SHA256 != "" && !strings.EqualFold(att.SHA256, ref.Key) {
		return blob.Ref{}, &mediaError{message: "the file's checksum does not match"}
	}
	att.ContentType = detectType(head, att.ContentType)
	if att.Name == "" {
		att.Name = mediaName(resp, att.ContentType)
	}
	return ref, nil
}

// download reads a response up to the limit and separates errors of reading from errors of
// storing.
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
		d.failed = &mediaError{message: "the download was interrupted", cause: err}
		return n, d.failed
	}
	return n, err
}

// fetchError converts a transport error. It does not repeat the URL, which may hold a
// signature.
func fetchError(err error) error {
	if m, ok := errors.AsType[*mediaError](err); ok {
		return m
	}
	if _, ok := errors.AsType[*netguard.AddressError](err); ok {
		return &mediaError{message: "the file's address is not public", cause: withoutURL(err), final: true}
	}
	return &mediaError{message: "the provider could not be reached", cause: withoutURL(err)}
}

func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// checkHost checks the URL of one hop.
func checkHost(u *url.URL, hosts []string) error {
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

// detectType prefers the detected type over the declared one. If detection is inconclusive, it
// returns the declared type unless a browser would execute it.
func detectType(head []byte, declared string) string {
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

// extensions lists common file extensions; the system's MIME table may return obscure ones
// first.
var extensions = [...][2]string{
	{"image/jpeg", ".jpg"}, {"image/png", ".png"}, {"image/gif", ".gif"}, {"image/webp", ".webp"}, {"image/heic", ".heic"},
	{"video/mp4", ".mp4"}, {"video/3gpp", ".3gp"}, {"video/quicktime", ".mov"}, {"video/webm", ".webm"},
	{"audio/mpeg", ".mp3"}, {"audio/amr", ".amr"}, {"audio/mp4", ".m4a"}, {"audio/ogg", ".ogg"}, {"audio/wave", ".wav"},
	{"application/pdf", ".pdf"}, {"text/plain", ".txt"}, {"text/vcard", ".vcf"}, {"text/x-vcard", ".vcf"}, {"text/calendar", ".ics"},
}

// mediaName returns the name from Content-Disposition, or one derived from the type.
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
