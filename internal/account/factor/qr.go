package factor

import (
	"fmt"
	"strings"

	"github.com/boombuler/barcode/qr"
)

// QR is a QR code: Path is the "d" of an SVG path that fills its dark modules, in a
// square of Size units including the quiet zone of 4.
type QR struct {
	Size int
	Path string
}

// quietZone is the margin of a QR code in modules (ISO/IEC 18004, section 6.3.8).
const quietZone = 4

func newQR(text string) (QR, error) {
	code, err := qr.Encode(text, qr.M, qr.Auto)
	if err != nil {
		return QR{}, fmt.Errorf("encode QR code: %w", err)
	}
	bounds := code.Bounds()
	dark := func(x, y int) bool {
		r, _, _, _ := code.At(bounds.Min.X+x, bounds.Min.Y+y).RGBA()
		return r == 0
	}
	var path strings.Builder
	for y := range bounds.Dy() {
		for x := 0; x < bounds.Dx(); x++ {
			run := 0
			for x+run < bounds.Dx() && dark(x+run, y) {
				run++
			}
			if run > 0 {
				fmt.Fprintf(&path, "M%d %dh%dv1h-%dz", x+quietZone, y+quietZone, run, run)
				x += run
			}
		}
	}
	return QR{Size: bounds.Dx() + 2*quietZone, Path: path.String()}, nil
}
