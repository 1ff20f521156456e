package web

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/desk"
)

// TestAttackAttachmentInTheCache: after a user has signed out, the next user of the
// browser requests an attachment's address. The cache must not have it.
func TestAttackAttachmentInTheCache(t *testing.T) {
	w := httptest.NewRecorder()
	new(Site).serveFile(w, httptest.NewRequest("GET", "/", nil), &desk.Attachment{Name: "passport.jpg", ContentType: "image/jpeg", Size: 3}, io.NopCloser(strings.NewReader("jpg")), nil)
	if got := w.Header().Get("Cache-Control"); got != "private, no-store" {
		t.Errorf("Cache-Control is %q, want no store", got)
	}
}
