package e2e

import "testing"

// TestCompose: the preview shows a reply by mail beside its text, a pasted picture stands in it, and
// the sent reply looks alike.
func TestCompose(t *testing.T) {
	t.Parallel()
	p := start(t)
	o, robin := p.organization("Acme Wheels")
	p.connect(o)
	p.receiveMail("ana@client.example", markup("Ana <ana@client.example>", "A map", "<p>Where are you?</p>"))
	p.until("the ticket", func() bool { return p.tickets(o.ID) == 1 })
	v := p.as(t, robin)
	v.open("/tickets/1")
	v.fill("textarea[name=reply]", "We are **here**: ")
	js[bool](v, `(() => {
		const data = new DataTransfer();
		const bytes = Uint8Array.from(atob("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="), (c) => c.charCodeAt(0));
		data.items.add(new File([bytes], "a map.png", { type: "image/png" }));
		const area = document.querySelector("textarea[name=reply]");
		area.focus();
		area.setSelectionRange(area.value.length, area.value.length);
		area.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true }));
		return true;
	})()`)
	v.wait("the picture in the text", `document.querySelector("textarea[name=reply]").value === "We are **here**: ![a-map](attachment:a-map.png)"`)
	v.press("Preview")
	const frame = `document.querySelector("iframe[name=preview]")?.contentDocument`
	v.wait("the preview", frame+`?.querySelector("strong")?.innerText === "here" && `+frame+`.querySelector("img").naturalWidth === 1`)
	v.checkAccess()
	v.checkLayout()
	v.press("Preview") // again
	v.wait("the preview again", frame+`?.querySelector("strong")`)
	v.press("Send")
	v.wait("the reply in the thread", `document.querySelector("#thread .md strong")?.innerText === "here" && document.querySelector("#thread .md img").naturalWidth === 1`)
	v.wait("an empty composer", `!document.querySelector("textarea[name=reply]").value && document.querySelector("[data-files]").hidden`)
}
