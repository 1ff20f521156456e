package email

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/channel"
	"github.com/kickstand-dev/kickstand/internal/safehtml"
)

// compose puts a message together again that a converter took apart, so that all
// mail takes the same way. The same parts always give the same bytes.
func (s *source) compose(headers map[string]texts, plain, markup string, attachments []jsonAttachment) {
	top := "multipart/mixed"
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		field := strings.ReplaceAll(name, "_", "-")
		for _, v := range headers[name] {
			v = strings.NewReplacer("\r", "", "\n", " ").Replace(v)
			switch strings.ToLower(field) {
			case "content-type":
				// What kind of report it is would otherwise be lost.
				if kind, params := mediaType(v); kind == "multipart/report" && cleanToken(params["report-type"]) {
					top = "multipart/report; report-type=" + params["report-type"]
				}
			case "content-transfer-encoding", "content-disposition", "mime-version":
			default:
				if field != "" && !strings.ContainsAny(field, ": \t\r\n") {
					fmt.Fprintf(&b, "%s: %s\r\n", field, v)
				}
			}
		}
	}
	sum := sha256.New()
	for _, v := range []string{b.String(), plain, markup} {
		fmt.Fprintf(sum, "%d %s", len(v), v)
	}
	digest := hex.EncodeToString(sum.Sum(nil))
	outer, inner := "outer-"+digest, "inner-"+digest
	fmt.Fprintf(&b, "MIME-Version: 1.0\r\nContent-Type: %s; boundary=%s\r\n\r\n", top, outer)
	if plain != "" || markup != "" {
		fmt.Fprintf(&b, "--%s\r\nContent-Type: multipart/alternative; boundary=%s\r\n\r\n", outer, inner)
	}
	for _, v := range [][2]string{{"text/plain", plain}, {"text/html", markup}} {
		if v[1] != "" {
			fmt.Fprintf(&b, "--%s\r\nContent-Type: %s; charset=utf-8\r\nContent-Transfer-Encoding: 8bit\r\n\r\n%s\r\n", inner, v[0], v[1])
		}
	}
	if plain != "" || markup != "" {
		fmt.Fprintf(&b, "--%s--\r\n", inner)
	}
	for _, a := range attachments {
		if a.Content == "" && a.URL != "" {
			s.remote = append(s.remote, channel.Attachment{
				Name:        fileName(headerText(string(a.Name))),
				ContentType: attachmentType(a),
				ContentID:   bracketless(string(a.ContentID)),
				Inline:      strings.EqualFold(string(a.Disposition), "inline"),
				URL:         safehtml.Clean(string(a.URL)),
			})
			continue
		}
		disposition := "attachment"
		if strings.EqualFold(string(a.Disposition), "inline") {
			disposition = "inline"
		}
		fmt.Fprintf(&b, "--%s\r\nContent-Type: %s\r\nContent-Transfer-Encoding: base64\r\n", outer, attachmentType(a))
		if name := fileName(headerText(string(a.Name))); name != "" {
			disposition = mime.FormatMediaType(disposition, map[string]string{"filename": name})
		}
		fmt.Fprintf(&b, "Content-Disposition: %s\r\n", disposition)
		if id := bracketless(string(a.ContentID)); id != "" {
			fmt.Fprintf(&b, "Content-ID: <%s>\r\n", id)
		}
		content := decodeBase64([]byte(a.Content))
		b.WriteString("\r\n")
		b.WriteString(base64.StdEncoding.EncodeToString(content))
		b.WriteString("\r\n")
	}
	fmt.Fprintf(&b, "--%s--\r\n", outer)
	s.raw = b.Bytes()
}

func attachmentType(a jsonAttachment) string {
	kind, _ := mediaType(string(a.ContentType))
	if kind == "" || strings.HasPrefix(kind, "multipart/") {
		return "application/octet-stream"
	}
	return kind
}
