package fleetpages_test

import (
	"net/http"
	"testing"
)

// TestWholeNumbers: a decimal comma is refused, not dropped. Commas between thousands are accepted.
func TestWholeNumbers(t *testing.T) {
	y := newYard(t)
	const path = "/fleet/settings/edit"
	form := formOf(y.admin.Page(path))
	for _, number := range []string{"1,5", "12,50", "1.5", "0,125", "1,2345", ",500", "1,,000", "1 000"} {
		y.admin.WantRefused(y.admin.Post(path, with(form, "cancel_grace_meters", number)), http.StatusUnprocessableEntity).Want("Cancellation distance (meters) must be a whole number.")
	}
	y.admin.Follow(y.admin.Post(path, with(form, "cancel_grace_meters", "1,000")))
	if s, _, err := y.live.Settings(t.Context(), y.live.db, y.live.organization.ID); err != nil || s.CancelGraceMeters != 1000 {
		t.Errorf("got %d, %v", s.CancelGraceMeters, err)
	}
}
