package fleetpages

import (
	"context"
	"strconv"
	"strings"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
)

// zoneWords is the rules of the edited zone in words, and what applies at a place. Its template
// is "zone-words".
type zoneWords struct {
	Rules   []string
	Place   string // to check, as entered
	Problem string // with the place or the shape
	Answers []zoneAnswer
}

// zoneAnswer says whether a ride may end at a place.
type zoneAnswer struct {
	End   web.Badge
	For   string // vehicle types; empty: all
	Words string // the whole rule
	By    string // what decides
}

// ruleWords describes a rule for vehicles.
func ruleWords(vehicles string, rule *fleet.Rule) string {
	return vehicles + ": " + ruleSentence(rule)
}

func ruleSentence(rule *fleet.Rule) string {
	var text string
	switch {
	case rule.StartAllowed && rule.EndAllowed:
		text = "rides may start and end"
	case rule.StartAllowed:
		text = "rides may start, but not end"
	case rule.EndAllowed:
		text = "rides may end, but not start"
	default:
		text = "rides may neither start nor end"
	}
	switch {
	case !rule.ThroughAllowed:
		return text + ", and riding through is not allowed."
	case rule.MaximumSpeed != nil:
		return text + "; riding through is allowed at up to " + strconv.FormatInt(*rule.MaximumSpeed, 10) + " km/h."
	}
	return text + "; riding through is allowed."
}

// words describes a zone as edited, and what would apply at the place of the form.
func (p *pages) words(ctx context.Context, r *web.Request, subs []fleet.Subaccount, n *fleet.NewZone, replaces, place string) (zoneWords, error) {
	w := zoneWords{Place: place}
	rules := n.RulesOrDefault()
	for i := range rules {
		w.Rules = append(w.Rules, ruleWords(ruleFor(subs, rules[i].VehicleTypeIDs), &rules[i]))
	}
	if len(rules) == 0 {
		w.Rules = []string{missingRules}
	}
	if place == "" {
		return w, nil
	}
	lat, lng, ok := readPosition(place)
	if !ok {
		w.Problem = "Enter a position such as 52.51, 13.39."
		return w, nil
	}
	list, err := p.Fleet.RulesWith(ctx, p.DB, r.OrganizationID, n.SubaccountID, n, replaces, geo.Position{Lat: lat, Lng: lng})
	if problem.Of(err) == problem.NotFound {
		w.Problem = "Choose a subaccount."
		return w, nil
	}
	if err != nil {
		return w, err
	}
	for _, d := range list {
		by, err := p.decidedBy(ctx, r, subs, n, replaces, d)
		if err != nil {
			return w, err
		}
		a := zoneAnswer{End: allowed(d.Rule.EndAllowed), For: ruleFor(subs, []string{d.VehicleTypeID}), Words: ruleSentence(&d.Rule), By: by}
		if d.VehicleTypeID == "" {
			a.For = ruleFor(subs, nil)
		}
		// Vehicle types with the same rule share an answer.
		if last := len(w.Answers) - 1; last >= 0 && w.Answers[last].Words == a.Words && w.Answers[last].By == a.By {
			w.Answers[last].For += ", " + a.For
			continue
		}
		w.Answers = append(w.Answers, a)
	}
	if len(w.Answers) == 1 {
		w.Answers[0].For = ""
	}
	for i := range w.Answers {
		a := &w.Answers[i]
		a.Words = strings.ToUpper(a.Words[:1]) + a.Words[1:]
	}
	return w, nil
}

// decidedBy names what decides at a place.
func (p *pages) decidedBy(ctx context.Context, r *web.Request, subs []fleet.Subaccount, n *fleet.NewZone, replaces string, d fleet.Decision) (string, error) {
	switch d.ZoneID {
	case "":
		for _, s := range subs {
			if s.ID == n.SubaccountID && len(s.GlobalRules) > 0 {
				return "No zone here; the rules of the subaccount apply.", nil
			}
		}
		if !d.Rule.EndAllowed {
			return "Outside of every service area.", nil
		}
		return "No zone here.", nil
	case fleet.DraftID, replaces:
		return "By this zone.", nil
	}
	z, err := p.Fleet.Zone(ctx, p.DB, r.OrganizationID, d.ZoneID)
	if problem.Of(err) == problem.NotFound { // deleted since
		return "", nil
	}
	return "By the zone " + z.Name + ".", err
}
