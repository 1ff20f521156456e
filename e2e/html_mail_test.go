package e2e

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/app"
)

// newsletter is a typical newsletter: two-line headings, colours, a table layout, and
// tracking pixels.
const newsletter = `<html><head><style>h1{line-height:1px}</style></head><body style="line-height:20px">
<table width="600" bgcolor="#f5f5f5" cellpadding="16"><tr><td align="center" style="font-family: Arial; line-height: 18px">
<h1 style="font-size: 32px; color: #b00020; position: absolute; top: 0">Your order of a very long name, which has two lines for certain in a narrow frame</h1>
<h2>Another heading that is long enough to need more than one line wherever it is shown</h2>
<p style="color:#222">Below it there is a table.</p>
<table border="1"><tr><td style="background-color:#fff8e1">Bell</td><td valign="top">2</td></tr></table>
<img src="https://shop.example/banner.png?who=4711" alt="Banner" width="120" height="60">
<img src="https://shop.example/open.gif?who=4711" width="1" height="1">
</td></tr></table></body></html>`

// TestMailInItsPlace: an HTML mail is rendered as sent, stays in its frame, and its
// images are fetched by the server on request.
func TestMailInItsPlace(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	picture := image.NewRGBA(image.Rect(0, 0, 120, 60))
	for i := range 120 * 60 {
		picture.Set(i%120, i/120, color.RGBA{0, 100, 200, 255})
	}
	var banner bytes.Buffer
	if err := png.Encode(&banner, picture); err != nil {
		t.Fatal(err)
	}
	shop := transport(func(r *http.Request) (*http.Response, error) {
		asked.Add(1)
		if r.Header.Get("Cookie") != "" || r.Header.Get("Referer") != "" || r.URL.Host != "shop.example" {
			t.Errorf("asked %s with %v", r.URL, r.Header)
		}
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(banner.Bytes())), Request: r}, nil
	})
	p := start(t, func(c *app.Config) { c.Pictures = shop })
	o, robin := p.organization("Acme Wheels")
	p.connect(o)
	p.receiveMail("shop@client.example", markup("Shop <shop@client.example>", "Your order", newsletter))
	p.until("the ticket", func() bool { return p.tickets(o.ID) == 1 })
	for _, scripts := range []bool{true, false} {
		v := p.as(t, robin)
		if !scripts {
			v.withoutScripts()
		}
		v.open("/tickets/1")
		const page = `document.querySelector("iframe.mail").contentDocument`
		v.wait("the mail", page+`?.querySelector("h1")`)
		for _, s := range []screen{wide, narrow} {
			v.setScreen(s)
			// Lines of a heading don't overlap: each is at least as high as its font.
			v.wait("lines apart", `[...`+page+`.querySelectorAll("h1, h2")].every((h) => {
				const style = getComputedStyle(h), size = parseFloat(style.fontSize);
				return parseFloat(style.lineHeight) >= size && style.position === "static";
			})`)
			v.wait("blocks apart", `(() => {
				const tops = [...`+page+`.querySelectorAll("h1, h2, p")].map((e) => e.getBoundingClientRect());
				return tops.every((r, i) => !i || r.top >= tops[i - 1].bottom);
			})()`)
			v.checkLayout()
		}
		if got := js[string](v, `getComputedStyle(`+page+`.querySelector("h1")).color + " " + getComputedStyle(`+page+`.querySelector("table table td")).backgroundColor + " " + getComputedStyle(`+page+`.body).backgroundColor`); got != "rgb(176, 0, 32) rgb(255, 248, 225) rgb(255, 255, 255)" {
			t.Errorf("colours %s", got)
		}
		if n := asked.Load(); scripts && n != 0 {
			t.Errorf("%d pictures were loaded before anybody asked", n)
		}
		v.setScreen(screen{width: wide.width, height: 2000, dark: true})
		if scripts { // axe needs scripts in frames, too
			v.checkAccess()
		}
		v.waitText("2 remote images are blocked")
		v.click("[data-pictures]")
		v.wait("the picture", `(() => { const i = `+page+`?.querySelector("img[alt=Banner]"); return i?.complete && i.naturalWidth === 120; })()`)
		if scripts {
			v.wait("no more of it", `!document.querySelector("[data-pictures]").checkVisibility() && document.activeElement.matches("iframe.mail")`)
			v.checkAccess()
		}
		v.checkLayout()
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("the shop was asked %d times for two pictures", n)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
