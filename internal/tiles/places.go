package tiles

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"

	"github.com/paulmach/orb"
	"golang.org/x/text/unicode/norm"
)

// Place is a city or town.
type Place struct {
	Name       string
	Country    string // ISO 3166: "DE"
	Lat, Lng   float64
	Population int

	at     orb.Point // on the square of Web Mercator
	folded []string  // the name and others of the place as they are compared
}

// places are all places by population, from the largest.
type places []Place

// readPlaces decodes the places. Like the lines, they are embedded and tested.
var readPlaces = sync.OnceValue(func() places {
	var list places
	for row := range bytes.Lines(mustUnzip(placesFile)) {
		f := strings.Split(strings.TrimSuffix(string(row), "\n"), "\t")
		p := Place{Name: f[0], Country: f[1], folded: []string{fold(f[0])}}
		p.Lat, _ = strconv.ParseFloat(f[2], 64)
		p.Lng, _ = strconv.ParseFloat(f[3], 64)
		p.Population, _ = strconv.Atoi(f[4])
		for other := range strings.SplitSeq(f[5], "|") {
			if other != "" {
				p.folded = append(p.folded, fold(other))
			}
		}
		p.at = mercator(p.Lat, p.Lng)
		list = append(list, p)
	}
	return list
})

// on returns the places in a part of the map with at least a population.
func (list places) on(view orb.Bound, population int) (found places) {
	for _, p := range list {
		if p.Population < population {
			break
		}
		if view.Contains(p.at) {
			found = append(found, p)
		}
	}
	return found
}

// FindPlaces returns at most limit places one of whose names has a text, regardless of case and accents:
// exact names first, then those that begin with it, each by population. The code of a country may follow after
// a comma: "San Francisco, US". Other words there are ignored.
func FindPlaces(text string, limit int) []Place {
	text, country, _ := strings.Cut(text, ",")
	text, country = fold(strings.TrimSpace(text)), strings.ToUpper(strings.TrimSpace(country))
	if text == "" {
		return nil
	}
	list := readPlaces()
	if !slices.ContainsFunc(list, func(p Place) bool { return strings.HasPrefix(p.Country, country) }) {
		country = ""
	}
	var exact, begin, within []Place
	for _, p := range list {
		if !strings.HasPrefix(p.Country, country) {
			continue
		}
		switch {
		case slices.Contains(p.folded, text):
			exact = append(exact, p)
		case slices.ContainsFunc(p.folded, func(name string) bool { return strings.HasPrefix(name, text) }):
			begin = append(begin, p)
		case slices.ContainsFunc(p.folded, func(name string) bool { return strings.Contains(name, text) }):
			within = append(within, p)
		}
	}
	found := slices.Concat(exact, begin, within)
	return found[:min(len(found), limit)]
}

// letters are letters that do not decompose.
var letters = strings.NewReplacer("ß", "ss", "ø", "o", "ł", "l", "đ", "d", "æ", "ae", "œ", "oe", "ı", "i", "’", "'", "‘", "'")

// fold returns a text in lower case without accents.
func fold(text string) string {
	return letters.Replace(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return unicode.ToLower(r)
	}, norm.NFD.String(text)))
}
