package account_test

import (
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/db/dbtest"
)

// TestAttackTruncatedPassword: every byte of a password counts, including spaces and
// letter case, so that no shorter or similar one signs in.
func TestAttackTruncatedPassword(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 64) // 1,024 bytes
	for _, tt := range []struct{ name, password, similar string }{
		{"the longest", long, long[:1023] + "x"},
		{"after 72 bytes, where bcrypt ends", long[:100], long[:72]},
		{"of 64 characters", strings.Repeat("ä", 64), strings.Repeat("ä", 63)},
		{"with spaces at its ends", "  wide open spaces  ", "wide open spaces"},
		{"with several spaces", "wide  open  spaces", "wide open spaces"},
		{"of emoji", "🛴🚲🛵🏍🛹🛼🚗🚙", "🛴🚲🛵🏍🛹🛼🚗🚗"},
		{"in another letter case", "Tandem Fahrrad Helm", "tandem fahrrad helm"},
		{"composed otherwise", "caf\u00e9 au lait", "cafe\u0301 au lait"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture(t, dbtest.New(t))
			in := f.signIn(t, "ada@example.com")
			if err := f.SetPassword(t.Context(), account.Identity{UserID: in.User.ID}, account.FirstPassword{Password: tt.password}); err != nil {
				t.Fatal(err)
			}
			if f.signsIn(t, "ada@example.com", tt.similar) {
				t.Error("a similar password signs in")
			}
			if !f.signsIn(t, "ada@example.com", tt.password) {
				t.Error("the password does not sign in")
			}
		})
	}
}
