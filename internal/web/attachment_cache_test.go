package web

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/desk"
)

// TestAttackAttachmentInTheCache: the next person at a shared computer asks the
// browser for the address of an attachment after its reader has signed out. Nothing
// may have kept it.
func TestAttackAttachmentInTheCache(t *testing.T) {
	w := httptest.NewRecorder()
	serveFile(w, &desk.Attachment{Name: "passport.jpg", ContentType: "image/jpeg", Size: 3}, strings.NewReader("jpg"))
	if got := w.Header().Get("Cache-Control"); got != "private, no-store" {
		t.Errorf("Cache-Control is %q, want no store", got)
	}
}
