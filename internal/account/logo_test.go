package account

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"image"
	palette "image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// drawing returns an image of one color with a transparent border.
func drawing(width, height int, c palette.Color) *image.NRGBA {
	p := image.NewNRGBA(image.Rect(0, 0, width, height))
	for y := height / 4; y < height*3/4+1; y++ {
		for x := width / 4; x < width*3/4+1; x++ {
			p.Set(x, y, c)
		}
	}
	return p
}

func encoded(t *testing.T, encode func(b *bytes.Buffer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// pngHeader returns the beginning of a PNG that declares a size.
func pngHeader(width, height uint32) []byte {
	chunk := append([]byte("IHDR"), make([]byte, 13)...)
	binary.BigEndian.PutUint32(chunk[4:], width)
	binary.BigEndian.PutUint32(chunk[8:], height)
	chunk[12], chunk[13] = 8, 6
	out := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d"), chunk...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(chunk))
}

var blue = palette.NRGBA{30, 60, 200, 255}

// TestLogosAreEncodedAgain: a logo is a small PNG of nothing but the picture, whose name says its content and size.
func TestLogosAreEncodedAgain(t *testing.T) {
	noise := image.NewNRGBA(image.Rect(0, 0, 500, 150))
	for i := range noise.Pix {
		noise.Pix[i] = byte(rand.Uint32())
	}
	small := encoded(t, func(b *bytes.Buffer) error { return png.Encode(b, drawing(40, 20, blue)) })
	for _, tt := range []struct {
		name          string
		file          []byte
		width, height int // 0: any
	}{
		{"small", small, 40, 20},
		{"with something behind it", append(bytes.Clone(small), "<script>alert(1)</script>"...), 40, 20},
		{"wide", encoded(t, func(b *bytes.Buffer) error { return png.Encode(b, drawing(1600, 100, blue)) }), 400, 25},
		{"high", encoded(t, func(b *bytes.Buffer) error { return png.Encode(b, drawing(300, 600, blue)) }), 60, 120},
		{"JPEG", encoded(t, func(b *bytes.Buffer) error { return jpeg.Encode(b, drawing(800, 240, blue), nil) }), 400, 120},
		{"noise", encoded(t, func(b *bytes.Buffer) error { return png.Encode(b, noise) }), 0, 0},
	} {
		logo, content, err := new(Service).NewLogo(tt.file)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		p, err := png.Decode(bytes.NewReader(content))
		if err != nil || len(content) > maxLogo || bytes.Contains(content, []byte("script")) {
			t.Errorf("%s: %d bytes, %v", tt.name, len(content), err)
			continue
		}
		if w, h := p.Bounds().Dx(), p.Bounds().Dy(); tt.width > 0 && (w != tt.width || h != tt.height) || w > maxLogoWidth || h > maxLogoHeight {
			t.Errorf("%s: %d × %d pixels", tt.name, w, h)
		}
		if w, h := logo.Size(); w != (p.Bounds().Dx()+1)/2 || h != (p.Bounds().Dy()+1)/2 {
			t.Errorf("%s: %s is displayed in %d × %d", tt.name, logo, w, h)
		}
		again, _, err := new(Service).NewLogo(content)
		if parsed, ok := ParseLogo(strings.TrimPrefix(logo.Path(), LogoPath)); !ok || parsed != logo || err != nil || again != logo {
			t.Errorf("%s: %s is parsed as %s, and encoded again as %s, %v", tt.name, logo, parsed, again, err)
		}
	}
}

// TestBadLogos: other formats, large and invisible pictures are refused with the reason.
func TestBadLogos(t *testing.T) {
	whole := encoded(t, func(b *bytes.Buffer) error { return png.Encode(b, drawing(40, 20, blue)) })
	webp, err := base64.StdEncoding.DecodeString("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==") // one transparent pixel
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, want string
		file       []byte
	}{
		{"empty", "must be a PNG, JPEG or WebP", []byte{}},
		{"SVG", "must be a PNG, JPEG or WebP", []byte(`<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`)},
		{"GIF", "must be a PNG, JPEG or WebP", encoded(t, func(b *bytes.Buffer) error { return gif.Encode(b, drawing(40, 20, blue), nil) })},
		{"half", "is damaged", whole[:len(whole)/2]},
		{"large", "must be at most 1 MB", make([]byte, MaxLogoFile+1)},
		{"many pixels", "60000 × 60000 pixels", pngHeader(60000, 60000)},
		{"overflowing pixels", "must be a PNG, JPEG or WebP", pngHeader(1<<31-1, 1<<31-1)},
		{"a line", "must not be wider", encoded(t, func(b *bytes.Buffer) error { return png.Encode(b, drawing(2100, 100, blue)) })},
		{"white", "cannot be seen on white", encoded(t, func(b *bytes.Buffer) error { return png.Encode(b, drawing(40, 20, palette.White)) })},
		{"transparent WebP", "cannot be seen on white", webp},
	} {
		if _, _, err := new(Service).NewLogo(tt.file); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
	// Scans of a few bytes can be repeated many thousand times.
	photo := encoded(t, func(b *bytes.Buffer) error { return jpeg.Encode(b, drawing(40, 20, blue), nil) })
	scan := bytes.Index(photo, []byte{0xff, 0xda})
	for n, ok := range map[int]bool{10: true, 101: false} {
		file := slices.Concat(photo[:scan], bytes.Repeat(photo[scan:len(photo)-2], n), photo[len(photo)-2:])
		if _, _, err := new(Service).NewLogo(file); (err == nil) != ok {
			t.Errorf("%d scans: %v", n, err)
		}
	}
	name := strings.Repeat("0a", 32)
	for _, path := range []string{name + "-1x1", name + "-0x1.png", name + "-1000x1.png", name[1:] + "-1x1.png", strings.ToUpper(name) + "-1x1.png", name + "-1x1.png/", "../" + name + "-1x1.png"} {
		if l, ok := ParseLogo(path); ok {
			t.Errorf("%s is the logo %s", path, l)
		}
	}
}
