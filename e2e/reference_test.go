package e2e

import (
	"strings"
	"testing"
)

// TestReference creates a sandbox key, takes it to the API reference, and runs requests there.
func TestReference(t *testing.T) {
	t.Parallel()
	p := start(t)
	_, robin := p.organization("Acme Wheels")
	v := p.as(t, robin)
	v.open("/docs/sandbox")
	v.press("Create a key")
	v.at("/settings/keys/new*")
	v.fill("#field-name", "Trial")
	v.fill("#field-level", "read_write")
	v.press("Create key")
	v.find(".secret")
	key := js[string](v, `document.querySelector(".secret code").innerText.trim()`)
	v.press("Use in the API reference")
	v.at("/docs/sandbox")
	v.wait("the key in the sample", `document.querySelector("[data-language=curl] code").textContent.includes("`+key+`")`)

	v.open("/docs/sandbox/vehicles")
	v.click("#language-python")
	v.wait("samples in Python", `getComputedStyle(document.querySelector("#listVehicles [data-language=python]")).display === "block" &&
		getComputedStyle(document.querySelector("#listVehicles [data-language=curl]")).display === "none"`)
	if text := js[string](v, `document.querySelector("#listVehicles [data-language=python] code").textContent`); !strings.Contains(text, `Fleet(key="`+key+`"`) {
		t.Errorf("the sample in Python is %s", text)
	}
	v.fill(`#listVehicles input[name="?"]`, "limit=1&state=missing")
	v.click("#listVehicles form[data-run] button")
	v.wait("the vehicle", `/^200 after .*"state": "missing"/s.test(document.querySelector("#listVehicles output").textContent)`)
	v.allow("/sandbox/v1/vehicles/no%20such%3Fvehicle")
	v.fill(`#getVehicle input[name="id"]`, "no such?vehicle")
	v.click("#getVehicle form[data-run] button")
	v.wait("the problem", `/^404 after .*"not_found"/s.test(document.querySelector("#getVehicle output").textContent)`)
	v.checkAccess()

	v.open("/docs/sandbox/rides")
	v.wait("the language of the last page", `document.querySelector("#language-python").checked`)
	v.keys("/")
	v.wait("focus in the search", `document.activeElement.id === "q"`)
	v.fill("#q", "battery")
	v.keys("\r")
	v.waitText("Results for “battery”", "The vehicle's battery is too low")
}

// TestReferenceWithoutScripts: everything can be read, and nothing seems to run.
func TestReferenceWithoutScripts(t *testing.T) {
	t.Parallel()
	p := start(t)
	v := p.visit(t)
	v.withoutScripts()
	v.open("/docs/sandbox/rides")
	v.waitText("Start or reserve a ride", "sandbox/v1/rides", "vehicle_unavailable")
	for _, selector := range []string{"form[data-run]", "button.copy", "[data-keys]"} {
		if !js[bool](v, `[...document.querySelectorAll("`+selector+`")].every((e) => !e.checkVisibility())`) {
			t.Errorf("%s is shown", selector)
		}
	}
	v.click("#language-ruby")
	v.wait("samples in Ruby", `document.querySelector("#createRide [data-language=ruby]").checkVisibility()`)
}
