package account

import (
	"fmt"
	"math"
	"regexp"
	"testing"
)

// TestAccentsAreReadable: every accepted color has the required contrast on light pages and, as its dark variant,
// on dark ones; the proposal for a refused one is accepted.
func TestAccentsAreReadable(t *testing.T) {
	contrast := func(a Accent, ground float64) float64 {
		var rgb [3]byte
		if _, err := fmt.Sscanf(string(a), "#%02x%02x%02x", &rgb[0], &rgb[1], &rgb[2]); err != nil {
			t.Fatalf("%q: %v", a, err)
		}
		l := linear(rgb).luminance()
		return (math.Max(l, ground) + 0.05) / (math.Min(l, ground) + 0.05)
	}
	proposal := regexp.MustCompile(`#[0-9a-f]{6}$`)
	accepted := 0
	for r := 0; r < 256; r += 15 {
		for g := 0; g < 256; g += 15 {
			for b := 0; b < 256; b += 15 {
				text := fmt.Sprintf("#%02X%02x%02x", r, g, b)
				a, err := ParseAccent(text)
				if err != nil {
					nearest := proposal.FindString(err.Error())
					if a, err = ParseAccent(nearest); err != nil {
						t.Fatalf("%s: the proposal %q is refused: %v", text, nearest, err)
					}
				} else {
					accepted++
				}
				if light, dark := contrast(a, lightGround), contrast(a.Dark(), darkGround); light < minContrast || dark < minContrast {
					t.Fatalf("%s: %s has %.2f on light pages, %s has %.2f on dark ones", text, a, light, a.Dark(), dark)
				}
			}
		}
	}
	if accepted < 500 {
		t.Errorf("only %d colors are accepted", accepted)
	}
	for _, text := range []string{"red", "#12345", "#1234567", "#ggg", "#5b21b6;}", "url(x)"} {
		if a, err := ParseAccent(text); err == nil {
			t.Errorf("%q is accepted as %q", text, a)
		}
	}
	if a, err := ParseAccent(" #50B "); err != nil || a != "#5500bb" {
		t.Errorf("got %q, %v", a, err)
	}
}
