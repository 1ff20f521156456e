package textwords_test

import (
	"slices"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/textwords"
)

func TestMatch(t *testing.T) {
	person := append(textwords.Split("José Núñez-Ångström pepe.nunez@client.example CRM-4711"), "4915112345678")
	for text, want := range map[string]bool{
		"nunez": true, "NÚÑ": true, "une": true, "jos angst": true, "jo": true, "os": false, "pepe": true, "nunez@cli": true, "711": true, "crm-47": true,
		"0151 12345": true, "+49 (0)151 1234": true, "0049151": true, "5678": true, "5679": false, "nunez weber": false, "": true,
	} {
		if got := textwords.Match(person, textwords.Sought(text)); got != want {
			t.Errorf("%q: got %v", text, got)
		}
	}
	// A plain text gives the same without being split.
	plain := "Jose Nunez-Angstrom pepe.nunez@CLIENT.example CRM-4711 +4915112345678"
	for _, text := range []string{"nunez", "une", "jo", "os", "client.ex", "711", "47", "71", "0151 12345", "5678", "5679", "nunez weber", "pe", "x", "c", "", "a e"} {
		parts := textwords.Sought(text)
		if got, want := textwords.MatchText(plain, parts), textwords.Match(textwords.Split(plain), parts); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	if !textwords.MatchText("José", textwords.Sought("jose")) || !textwords.MatchText("Σίσυφος Œuvre", textwords.Plain(textwords.Sought("σισυφ œuv"))) || !textwords.MatchText("Großmann-İz", textwords.Sought("ssman iz")) {
		t.Error("accents count")
	}
	for _, name := range []string{"Łukasz Søren Đorđe", "Łukasz Søren Đorđe Σ", "lukasz soren dorde"} {
		for _, text := range []string{"lukasz", "ŁUK", "soren", "sør", "đor dor"} {
			if !textwords.MatchText(name, textwords.Plain(textwords.Sought(text))) {
				t.Errorf("%q is not in %q", text, name)
			}
		}
	}
	if got := textwords.Split("東京 Straße"); !slices.Equal(got, []string{"東", "京", "strasse"}) {
		t.Errorf("got %q", got)
	}
}
