package account

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Accent is the color of an organization on pages and in mails that people outside of it see:
// "#5b21b6", in lower case. It can be read on light pages. Empty: Kickstand's color.
type Accent string

// Relative luminances (WCAG 2.2) of the backgrounds in static/css/00-tokens.css: the darkest of light pages
// and the lightest of dark ones.
const (
	lightGround = 0.87
	darkGround  = 0.0157
	// minContrast is what WCAG 2.2 requires of text, level AA.
	minContrast = 4.5
)

// ParseAccent parses a color as #rrggbb or #rgb. It refuses one that cannot be read on light pages, and
// names the nearest that can. Empty is allowed.
func ParseAccent(text string) (Accent, error) {
	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" {
		return "", nil
	}
	digits := strings.TrimPrefix(text, "#")
	if len(digits) == 3 {
		digits = string([]byte{digits[0], digits[0], digits[1], digits[1], digits[2], digits[2]})
	}
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != 3 {
		return "", errors.New("must be a color such as #5b21b6")
	}
	c := linear([3]byte(raw))
	// A color passes if its luminance is at most this.
	most := (lightGround+0.05)/minContrast - 0.05
	if l := c.luminance(); l > most {
		nearest := c
		for i := range nearest {
			nearest[i] *= most / l
		}
		return "", fmt.Errorf("needs a contrast of %.1f:1 on light pages and has %.1f:1. The nearest color with enough is %s",
			minContrast, math.Floor((lightGround+0.05)/(l+0.05)*10)/10, nearest.encode(math.Floor))
	}
	return Accent("#" + digits), nil
}

// Dark returns the color on dark pages: the same, or the nearest lighter one that can be read there.
func (a Accent) Dark() Accent {
	raw, err := hex.DecodeString(strings.TrimPrefix(string(a), "#"))
	if err != nil || len(raw) != 3 {
		return ""
	}
	c := linear([3]byte(raw))
	least := (darkGround+0.05)*minContrast - 0.05
	if l := c.luminance(); l < least {
		for i := range c {
			c[i] += (1 - c[i]) * (least - l) / (1 - l)
		}
		return Accent(c.encode(math.Ceil))
	}
	return a
}

// color is a color in linear sRGB, from 0 to 1.
type color [3]float64

func linear(rgb [3]byte) (c color) {
	for i, v := range rgb {
		if s := float64(v) / 255; s <= 0.04045 {
			c[i] = s / 12.92
		} else {
			c[i] = math.Pow((s+0.055)/1.055, 2.4)
		}
	}
	return c
}

// luminance returns the relative luminance.
func (c color) luminance() float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] }

// encode returns the color as #rrggbb, rounded by round.
func (c color) encode(round func(float64) float64) string {
	var rgb [3]byte
	for i, v := range c {
		s := 12.92 * v
		if v > 0.0031308 {
			s = 1.055*math.Pow(v, 1/2.4) - 0.055
		}
		rgb[i] = byte(min(max(round(s*255), 0), 255))
	}
	return "#" + hex.EncodeToString(rgb[:])
}
