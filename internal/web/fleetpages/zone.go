package fleetpages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/optional"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/mapview"
)

// zonesPage is the body of the list of zones.
type zonesPage struct {
	Topic   string
	Base    string
	Filters filters
	Rows    []zoneRow
	Count   string
	Pager   web.Pager
	Empty   web.Empty
}

// zoneRow is a zone in the list.
type zoneRow struct {
	ID, Path, Name string
	Type           web.Badge
	Priority       int64
	Subaccount     string
	Force          web.Badge
	Changed        web.Time
}

// zoneBadge is the badge of a zone's type.
func zoneBadge(t fleet.ZoneType) web.Badge {
	c := web.Badge{Text: zoneTypeLabel(t)}
	switch t {
	case fleet.Parking:
		c.Tone = web.Accent
	case fleet.Slow:
		c.Tone = web.Warning
	case fleet.NoParking, fleet.NoRide:
		c.Tone = web.Bad
	}
	return c
}

// forceBadge is the badge of a zone in force or not.
func forceBadge(z *fleet.Zone, now time.Time) web.Badge {
	switch {
	case now.Before(z.StartsAt.Std()):
		return web.Badge{Text: "Scheduled", Icon: "clock"}
	case !z.EndsAt.Std().IsZero() && !now.Before(z.EndsAt.Std()):
		return web.Badge{Text: "Ended", Icon: "x"}
	}
	return web.Badge{Text: "In force", Tone: web.Good, Icon: "check"}
}

// zones lists zones by precedence.
func (p *pages) zones(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	subs, fields, err := p.subaccountChoices(ctx, r)
	if err != nil {
		return err
	}
	b := zonesPage{
		Topic: p.topic(fleet.ZoneKind), Base: p.base, Empty: web.Empty{Text: "No zones: rides can start and end anywhere."},
		Filters: filters{Fields: append(fields, web.Field{Name: "type", Label: "Type", Type: "select", Options: append([]web.Option{{Label: "All"}}, zoneTypes[:]...)},
			web.Field{Name: "force", Label: "In force", Type: "select", Options: []web.Option{{Label: "All"}, {Value: "now", Label: "Now"}, {Value: "not", Label: "Not now"}}})},
	}
	if r.Admin() {
		b.Empty.Path, b.Empty.Label = p.base+"/zones/new", "Create zone"
	}
	b.Filters.parse(r)
	q := fleet.ZoneQuery{Subaccount: b.Filters.list("subaccount"), Sort: keyset.Sort{Field: "priority"}, After: after(r), Limit: perPage}
	if t := b.Filters.get("type"); t != "" {
		q.Type = []fleet.ZoneType{fleet.ZoneType(t)}
	}
	if f := b.Filters.get("force"); f != "" {
		q.InForce = new(f == "now")
	}
	if b.Filters.All != "" {
		b.Empty = web.Empty{Text: "No zones match these filters.", Path: b.Filters.All, Label: "Show all"}
	}
	docs, next, err := p.Fleet.ListZones(ctx, p.DB, r.OrganizationID, q)
	if err != nil {
		return err
	}
	for i := range docs {
		z, err := zoneOf(&docs[i])
		if err != nil {
			return err
		}
		b.Rows = append(b.Rows, zoneRow{
			ID: z.ID, Path: p.base + "/zones/" + z.ID, Name: z.Name, Type: zoneBadge(z.Type), Priority: z.Priority,
			Subaccount: nameOf(subs, z.SubaccountID), Force: forceBadge(&z.Zone, r.Now), Changed: r.Time(z.UpdatedAt.Std()),
		})
	}
	b.Count = resultCount(len(docs), q.After == nil, next, "%d zone", "%d zones")
	if b.Pager, err = pager(r, next); err != nil {
		return err
	}
	return p.Render(w, r, "zones", p.listPage(r, "/zones", "Zones", b))
}

// listedZone is a zone without its geometry, since lists need not validate it.
type listedZone struct {
	fleet.Zone
	Geometry json.RawMessage `json:"geometry"`
}

func zoneOf(d *fleet.Record) (z listedZone, err error) {
	if err = json.Unmarshal(d.JSON, &z); err != nil {
		err = fmt.Errorf("read a zone of a list: %w", err)
	}
	return z, err
}

// nameOf is a subaccount's name; empty if there is only one.
func nameOf(subs []fleet.Subaccount, id string) string {
	if len(subs) > 1 {
		for _, s := range subs {
			if s.ID == id {
				return s.Name
			}
		}
	}
	return ""
}

// zonePage is the body of the page of a zone.
type zonePage struct {
	Zone       *fleet.Zone
	Topic      string
	Path       string
	Type       web.Badge
	Force      web.Badge
	Subaccount string
	From, To   web.Time
	Changed    web.Time
	Made       web.Time
	Rules      []zoneRule
	Ground     *zoneMap
	Vehicles   string
	Map        string
	Points     int
}

// zoneRule describes a rule.
type zoneRule struct {
	For, Words          string
	Start, End, Through web.Badge
	Speed               string
}

func allowed(on bool) web.Badge {
	if on {
		return web.Badge{Text: "Yes", Tone: web.Good, Icon: "check"}
	}
	return web.Badge{Text: "No", Tone: web.Bad, Icon: "x"}
}

// zoneMap is a static map with a shape.
type zoneMap struct {
	ground
	Shape string
}

// zoneMap draws the zones in a view, without one of them.
func (p *pages) zoneMap(ctx context.Context, r *web.Request, v mapview.View, without string) (*zoneMap, error) {
	g := &zoneMap{ground: p.newGround(v)}
	box := v.Box()
	docs, _, err := p.Fleet.ListZones(ctx, p.DB, r.OrganizationID, fleet.ZoneQuery{Box: &box, Limit: mapZones})
	if err != nil {
		return nil, err
	}
	for i := range docs {
		z, err := readOutlined(&docs[i])
		if err != nil {
			return nil, err
		}
		if path := v.Path(z.Geometry.Coordinates, mapShapes/len(docs)); path != "" && z.ID != without {
			g.Zones = append(g.Zones, drawnZone{z.Name + ", " + zoneTypeLabel(z.Type), path, p.base + "/zones/" + z.ID, z.Type})
		}
	}
	return g, nil
}

// outlineOf is the geometry of a zone for drawing.
func outlineOf(z *fleet.Zone) (outlined, error) {
	d, err := z.Record()
	if err != nil {
		return outlined{}, err
	}
	return readOutlined(&d)
}

// zone shows a zone.
func (p *pages) zone(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	z, err := p.Fleet.Zone(ctx, p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	subs, err := p.Fleet.Subaccounts(ctx, p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	b := zonePage{
		Zone: &z, Topic: p.topic(fleet.ZoneKind, z.ID), Path: p.base + "/zones/" + z.ID, Type: zoneBadge(z.Type), Force: forceBadge(&z, r.Now),
		Subaccount: nameOf(subs, z.SubaccountID), From: r.Time(z.StartsAt.Std()), To: r.Time(z.EndsAt.Std()), Changed: r.Time(z.UpdatedAt.Std()), Made: r.Time(z.CreatedAt.Std()),
		Vehicles: p.base + "/vehicles?zone=" + z.ID,
	}
	for _, rule := range z.Rules {
		b.Rules = append(b.Rules, zoneRule{
			For: ruleFor(subs, rule.VehicleTypeIDs), Words: ruleWords(ruleFor(subs, rule.VehicleTypeIDs), &rule), Start: allowed(rule.StartAllowed), End: allowed(rule.EndAllowed), Through: allowed(rule.ThroughAllowed), Speed: speed(rule.MaximumSpeed),
		})
	}
	shape, err := outlineOf(&z)
	if err != nil {
		return err
	}
	for _, polygon := range shape.Geometry.Coordinates {
		for _, ring := range polygon {
			b.Points += len(ring) - 1
		}
	}
	v := mapview.Fit(mapWidth, mapHeight, []geo.Box{mapview.Bounds(shape.Geometry.Coordinates)})
	if b.Ground, err = p.zoneMap(ctx, r, v, z.ID); err != nil {
		return err
	}
	b.Ground.Shape = v.Path(shape.Geometry.Coordinates, mapShapes)
	there := url.Values{}
	v.WriteQuery(there)
	b.Map = web.Address(p.base+"/map", there)
	return p.Render(w, r, "zone", p.page(r, "/zones", z.Name, b))
}

func speed(kph *int64) string {
	if kph == nil {
		return "No limit"
	}
	return strconv.FormatInt(*kph, 10) + " km/h"
}

// ruleFor describes the vehicle types of a rule.
func ruleFor(subs []fleet.Subaccount, ids []string) string {
	if len(ids) == 0 {
		return "All vehicles"
	}
	var names []string
	for _, s := range subs {
		for _, t := range s.VehicleTypes {
			if slices.Contains(ids, t.ID) {
				names = append(names, t.Name)
			}
		}
	}
	return strings.Join(names, ", ")
}

// maxZoneRules is the maximum number of rules of the form. The API has no such
// limit.
const maxZoneRules = 20

// maxZoneForm is the size limit of the form in bytes: a shape has up to 10,000 positions, as GeoJSON
// with all their digits, and each bracket and comma takes three bytes in a form.
const maxZoneForm = 1 << 20

// zoneForm is the body of the form of a zone.
type zoneForm struct {
	Intro  string
	Groups []group
	Label  string
	Cancel string
	Was    web.Fields // see [form]
	More   bool       // rules can be added
	Ground *zoneMap
	Search placeSearch
	Words  zoneWords
}

// zoneFields are the fields of a zone with a number of rules.
func zoneFields(z *fleet.Zone, subs []fleet.Subaccount, isNew bool, rules int, r *web.Request) (web.Fields, []group) {
	fields := web.Fields{
		{Name: "name", Label: "Name", Type: "text", Most: 256, Value: z.Name},
		{Name: "type", Label: "Type", Type: "select", Value: string(z.Type), Options: zoneTypes[:], Help: "Sets the default rules and priority."},
	}
	first := 2
	if isNew && len(subs) > 1 {
		fields = append(fields, web.Field{Name: "subaccount_id", Label: "Subaccount", Type: "select", Value: z.SubaccountID, Options: options(subs, "", func(s fleet.Subaccount) web.Option {
			return web.Option{Value: s.ID, Label: s.Name}
		})})
		first++
	}
	fields = append(fields,
		web.Field{Name: "geometry", Label: "Shape", Type: "textarea", Rows: 6, Value: pointsOf(z), Help: "One corner per line, latitude then longitude: 52.51, 13.39. Or a GeoJSON Polygon or MultiPolygon."},
		web.Field{Name: "description", Label: "Description", Type: "textarea", Rows: 2, Optional: true, Most: 5000, Value: string(z.Description)},
		web.Field{Name: "priority", Label: "Priority", Type: "text", Mode: "numeric", Optional: true, Value: priorityOf(z), Help: "From 0 to 1000. Where zones overlap, the smaller number applies. Empty: the default of the type."},
		web.Field{Name: "starts_at", Label: "In force from", Type: "datetime-local", Optional: true, Value: localTime(z.StartsAt, r.Now.Location())},
		web.Field{Name: "ends_at", Label: "Until", Type: "datetime-local", Optional: true, Value: localTime(z.EndsAt, r.Now.Location())},
	)
	groups := []group{{Fields: fields[:first:first]}, {Fields: fields[first : first+1 : first+1]}, {Fields: fields[first+1 : first+3 : first+3]}, {Row: true, Fields: fields[first+3 : first+5 : first+5], Help: "In the time zone of this browser. Both empty: always."}}
	sizes := len(fields)
	for i := range rules {
		rule := fleet.Rule{StartAllowed: true, EndAllowed: true, ThroughAllowed: true}
		use := ""
		if i < len(z.Rules) {
			rule, use = z.Rules[i], "on"
		}
		at := "rules." + strconv.Itoa(i)
		fields = append(fields,
			web.Field{Name: at, Label: "Use this rule", Type: "checkbox", Optional: true, Value: use},
			web.Field{Name: at + ".vehicle_type_ids", Label: "For", Type: "select", Value: strings.Join(rule.VehicleTypeIDs, " "), Options: ruleTypes(subs, rule.VehicleTypeIDs)},
			web.Field{Name: at + ".ride_start_allowed", Label: "Ride start allowed", Type: "checkbox", Optional: true, Value: checked(rule.StartAllowed)},
			web.Field{Name: at + ".ride_end_allowed", Label: "Ride end allowed", Type: "checkbox", Optional: true, Value: checked(rule.EndAllowed)},
			web.Field{Name: at + ".ride_through_allowed", Label: "Riding through allowed", Type: "checkbox", Optional: true, Value: checked(rule.ThroughAllowed)},
			web.Field{Name: at + ".maximum_speed_kph", Label: "Maximum speed (km/h)", Type: "text", Mode: "numeric", Optional: true, Value: optionalInteger(rule.MaximumSpeed)},
		)
	}
	// The slices above may refer to an array that append has replaced.
	n := 0
	for i := range groups {
		size := len(groups[i].Fields)
		groups[i].Fields = fields[n : n+size : n+size]
		n += size
	}
	for i := range rules {
		from := sizes + i*6
		g := group{Legend: "Rule " + strconv.Itoa(i+1), Fields: fields[from : from+6 : from+6]}
		if i == 0 {
			g.Help = "The first rule for the vehicle type applies. Without rules, those of the zone type apply."
		}
		groups = append(groups, g)
	}
	return fields, groups
}

func ruleTypes(subs []fleet.Subaccount, ids []string) []web.Option {
	list := []web.Option{{Label: "All vehicles"}}
	if len(ids) > 1 {
		list = append(list, web.Option{Value: strings.Join(ids, " "), Label: ruleFor(subs, ids)})
	}
	return append(list, anyType(subs)[1:]...)
}

func priorityOf(z *fleet.Zone) string {
	if z.ID == "" {
		return ""
	}
	return strconv.FormatInt(z.Priority, 10)
}

// pointsOf formats a shape for editing: corners for a single ring, else GeoJSON.
func pointsOf(z *fleet.Zone) string {
	if z.ID == "" {
		return ""
	}
	shape, err := outlineOf(z)
	if err != nil {
		return ""
	}
	all := shape.Geometry.Coordinates
	if len(all) != 1 || len(all[0]) != 1 {
		text, err := json.Marshal(z.Geometry)
		if err != nil {
			return ""
		}
		return string(text)
	}
	var b strings.Builder
	for _, at := range all[0][0][:len(all[0][0])-1] {
		b.WriteString(strconv.FormatFloat(at[1], 'f', -1, 64) + ", " + strconv.FormatFloat(at[0], 'f', -1, 64) + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// shape parses a shape.
func (t *formInput) shape(name string) (a geo.Area) {
	text := strings.TrimSpace(t.Get(name))
	if text == "" {
		return a // the fleet reports it as required
	}
	if !strings.HasPrefix(text, "{") {
		ring, wrong := parseCorners(text)
		if wrong != "" {
			t.v.AddCode("invalid_format", name, "must be lines such as 52.51, 13.39, unlike %q", wrong)
			return a
		}
		made, err := json.Marshal(map[string]any{"type": "Polygon", "coordinates": [][][2]float64{ring}})
		if err != nil { // not a number, like "NaN"
			t.v.AddCode("invalid_format", name, "must be degrees")
			return a
		}
		text = string(made)
	}
	var feature struct {
		Type     string          `json:"type"`
		Geometry json.RawMessage `json:"geometry"`
		Features []struct {
			Geometry json.RawMessage `json:"geometry"`
		} `json:"features"`
	}
	if json.Unmarshal([]byte(text), &feature) == nil {
		switch {
		case feature.Type == "Feature":
			text = string(feature.Geometry)
		case feature.Type == "FeatureCollection" && len(feature.Features) == 1:
			text = string(feature.Features[0].Geometry)
		}
	}
	a, err := geo.ParseArea([]byte(text))
	if e, ok := errors.AsType[*geo.ShapeError](err); ok {
		t.v.AddCode("invalid_geometry", name, "%s", e.Drawn)
	} else if err != nil {
		t.v.AddCode("invalid_geometry", name, "%v", err)
	}
	return a
}

// parseCorners parses lines of latitude and longitude as a closed ring. If one is malformed, it
// is returned in wrong.
func parseCorners(text string) (ring [][2]float64, wrong string) {
	for _, line := range web.Lines(text) {
		parts := strings.FieldsFunc(line, func(c rune) bool { return c == ',' || c == ';' || c == ' ' || c == '\t' })
		if len(parts) != 2 {
			return nil, line
		}
		lat, latErr := strconv.ParseFloat(parts[0], 64)
		lng, lngErr := strconv.ParseFloat(parts[1], 64)
		if latErr != nil || lngErr != nil {
			return nil, line
		}
		ring = append(ring, [2]float64{lng, lat})
	}
	if len(ring) > 0 && ring[0] != ring[len(ring)-1] {
		ring = append(ring, ring[0])
	}
	return ring, ""
}

// zone parses the form of a zone with a number of rules. Times are in zone.
func (t *formInput) zone(zone *time.Location, rules int) fleet.NewZone {
	z := fleet.NewZone{
		SubaccountID: t.Get("subaccount_id"), Name: t.text("name"), Description: fleet.NullString(t.text("description")), Type: fleet.ZoneType(t.Get("type")),
		Geometry: t.shape("geometry"), Priority: t.optional("priority"), StartsAt: t.moment("starts_at", zone), EndsAt: t.moment("ends_at", zone), Rules: []fleet.Rule{},
	}
	for i := range rules {
		at := "rules." + strconv.Itoa(i)
		if !t.on(at) {
			continue
		}
		t.use("rules", i)
		z.Rules = append(z.Rules, fleet.Rule{
			VehicleTypeIDs: strings.Fields(t.Get(at + ".vehicle_type_ids")), StartAllowed: t.on(at + ".ride_start_allowed"), EndAllowed: t.on(at + ".ride_end_allowed"),
			ThroughAllowed: t.on(at + ".ride_through_allowed"), MaximumSpeed: t.optional(at + ".maximum_speed_kph"),
		})
	}
	return z
}

// zoneChange returns the change from the stored zone to the form's.
func (t *formInput) zoneChange(form *fleet.NewZone, stored *fleet.Zone, zone *time.Location) fleet.ZoneChange {
	c := fleet.ZoneChange{
		Name: optional.Of(form.Name), Description: optional.Of(form.Description), Type: optional.Of(form.Type), Geometry: optional.Of(form.Geometry),
	}
	// Fields have whole minutes; unchanged fields retain the stored time.
	if t.Get("starts_at") != localTime(stored.StartsAt, zone) {
		c.StartsAt = optional.Of(form.StartsAt)
	}
	if t.Get("ends_at") != localTime(stored.EndsAt, zone) {
		c.EndsAt = optional.Of(form.EndsAt)
	}
	// Unchanged rules and priority follow the type, which may have changed.
	sameType := form.Type == stored.Type
	if sameType || !slices.EqualFunc(form.Rules, stored.Rules, sameRule) {
		c.Rules = optional.Of(form.Rules)
	}
	switch {
	case form.Priority == nil:
		c.Priority = optional.Value[int64]{Set: true, Null: true}
	case sameType || *form.Priority != stored.Priority:
		c.Priority = optional.Of(*form.Priority)
	}
	return c
}

// newZone creates a zone.
func (p *pages) newZone(w http.ResponseWriter, r *web.Request) error {
	return p.editZone(w, r, &fleet.Zone{Type: fleet.Parking}, true)
}

// changeZone updates a zone.
func (p *pages) changeZone(w http.ResponseWriter, r *web.Request) error {
	z, err := p.Fleet.Zone(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	return p.editZone(w, r, &z, false)
}

// editZone renders and processes the form of a zone.
func (p *pages) editZone(w http.ResponseWriter, r *web.Request, z *fleet.Zone, isNew bool) error {
	subs, err := p.Fleet.Subaccounts(r.Context(), p.DB, r.OrganizationID)
	if err != nil {
		return err
	}
	if !isNew {
		// Rules refer to the vehicle types of the zone's subaccount.
		subs = slices.DeleteFunc(subs, func(s fleet.Subaccount) bool { return s.ID != z.SubaccountID })
	}
	if len(z.Rules) > maxZoneRules {
		return problem.New(problem.Precondition, "this zone has %d rules, more than this form supports; use the API", len(z.Rules))
	}
	t := &formInput{}
	rules := len(z.Rules)
	if r.Method == http.MethodPost {
		var ok bool
		if t.Values, ok = p.FormUpTo(w, r, maxZoneForm); !ok {
			return nil
		}
		rules = t.rows("rules", "vehicle_type_ids")
	}
	more := t.Get("more") != ""
	if more && rules < maxZoneRules { // the new rule allows all
		at := "rules." + strconv.Itoa(rules)
		for _, name := range []string{"", ".ride_start_allowed", ".ride_end_allowed", ".ride_through_allowed"} {
			t.Set(at+name, "on")
		}
		rules++
	}
	fields, groups := zoneFields(z, subs, isNew, rules, r)
	stored := func(z *fleet.Zone) web.Fields {
		fields, _ := zoneFields(z, subs, isNew, len(z.Rules), r)
		return fields
	}
	n := fleet.NewZone{Type: z.Type, Geometry: z.Geometry, Rules: z.Rules}
	if t.Values != nil {
		n = t.zone(r.Now.Location(), rules)
	}
	if len(subs) == 1 {
		n.SubaccountID = subs[0].ID
	}
	words, err := p.words(r.Context(), r, subs, &n, z.ID, t.text("check_at"))
	if err != nil {
		return err
	}
	if e, ok := errors.AsType[*problem.Error](t.v.Err()); ok && words.Place != "" {
		for _, issue := range e.Issues {
			if issue.Path == "geometry" { // the answers would be those without the zone
				words.Answers, words.Problem = nil, "Shape "+issue.Message+"."
			}
		}
	}
	switch {
	case t.Values == nil:
		fields.Focus()
	case t.Get("check") != "" && r.Header.Get("X-Live") != "":
		return p.Fragment(w, "zone_form", "zone-words", words)
	case more, t.Get("check") != "":
		fill(fields, t.Values)
	default:
		saved, err := p.saveZone(r, fields, stored, t, z, isNew, n)
		if err != nil {
			return err
		}
		if saved != nil {
			what := "Zone saved."
			if isNew {
				what = "Zone created."
			}
			return p.Redirect(w, p.base+"/zones/"+saved.ID, web.Notice{Text: what})
		}
	}
	body := zoneForm{Groups: groups, Was: onceField(), More: rules < maxZoneRules, Words: words}
	if !isNew {
		body.Was = t.openedWith(fields)
	}
	return p.renderZoneForm(w, r, z, isNew, fields, body, &n)
}

// saveZone creates or updates z. stored returns the fields of a zone as they are stored. If fields are
// invalid, it sets their errors and returns nil.
func (p *pages) saveZone(r *web.Request, fields web.Fields, stored func(*fleet.Zone) web.Fields, t *formInput, z *fleet.Zone, isNew bool, n fleet.NewZone) (*fleet.Zone, error) {
	var saved fleet.Zone
	ok, err := p.change(r, fields, t, func(ctx context.Context, tx *db.Tx) (err error) {
		if isNew {
			saved, err = p.Fleet.CreateZoneTx(ctx, tx, r.OrganizationID, n)
			return err
		}
		locked, err := p.Fleet.LockZoneTx(ctx, tx, r.OrganizationID, z.ID)
		if err != nil {
			return err
		}
		saved, err = p.Fleet.UpdateZoneTx(ctx, tx, r.OrganizationID, locked, t.zoneChange(&n, &locked, r.Now.Location()))
		if err != nil {
			return err
		}
		return t.checkStored(stored(&locked), stored(&saved))
	})
	if err != nil || !ok {
		return nil, err
	}
	return &saved, nil
}

// renderZoneForm renders the form of a zone over the map around it.
func (p *pages) renderZoneForm(w http.ResponseWriter, r *web.Request, z *fleet.Zone, isNew bool, fields web.Fields, body zoneForm, n *fleet.NewZone) error {
	title := "New zone"
	body.Label, body.Cancel = "Create zone", p.base+"/zones"
	if !isNew {
		title = "Edit " + z.Name
		body.Label, body.Cancel = "Save", p.base+"/zones/"+z.ID
	}
	var v mapview.View
	var given bool
	var err error
	if body.Search, v, given = findPlace(r, nil); !given {
		v, given = mapview.Parse(mapWidth, mapHeight, r.URL.Query())
	}
	if !given {
		boxes := n.Geometry.Boxes()
		if len(boxes) == 0 {
			if boxes, err = p.extent(r.Context(), r, nil); err != nil {
				return err
			}
		}
		v = mapview.Fit(mapWidth, mapHeight, boxes)
	}
	if body.Ground, err = p.zoneMap(r.Context(), r, v, z.ID); err != nil {
		return err
	}
	page := p.page(r, "/zones", title, body)
	page.Fields, page.Scripts = fields, []string{"draw.js"}
	page.Class += " full"
	if len(fields.Wrong()) > 0 {
		page.Status = http.StatusUnprocessableEntity
	}
	return p.Render(w, r, "zone_form", page)
}

// sameRule reports whether two rules are equal.
func sameRule(a, b fleet.Rule) bool {
	return slices.Equal(a.VehicleTypeIDs, b.VehicleTypeIDs) && a.StartAllowed == b.StartAllowed && a.EndAllowed == b.EndAllowed &&
		a.ThroughAllowed == b.ThroughAllowed && optionalInteger(a.MaximumSpeed) == optionalInteger(b.MaximumSpeed)
}

// deleteZone confirms and deletes a zone.
func (p *pages) deleteZone(w http.ResponseWriter, r *web.Request) error {
	z, err := p.Fleet.Zone(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	ok, err := p.confirmed(w, r, p.page(r, "/zones", "Delete "+z.Name, nil), web.Confirm{
		Text: "The zone's rules no longer apply. Its id remains in rides.", Type: z.Name, Label: "Delete zone", Cancel: p.base + "/zones/" + z.ID,
	})
	if err != nil || !ok {
		return err
	}
	if err := p.write(r, func(ctx context.Context, tx *db.Tx) error {
		return p.Fleet.DeleteZoneTx(ctx, tx, r.OrganizationID, z.ID)
	}); err != nil {
		return err
	}
	return p.Redirect(w, p.base+"/zones", web.Notice{Text: "Zone deleted."})
}

// zoneFile sends a zone as a GeoJSON feature.
func (p *pages) zoneFile(w http.ResponseWriter, r *web.Request) error {
	z, err := p.Fleet.Zone(r.Context(), p.DB, r.OrganizationID, r.PathValue("id"))
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{
		"type": "Feature", "id": z.ID, "geometry": z.Geometry,
		"properties": map[string]any{"name": z.Name, "type": z.Type, "rules": z.Rules, "priority": z.Priority},
	})
	if err != nil {
		return fmt.Errorf("write a zone as GeoJSON: %w", err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/geo+json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Disposition", `attachment; filename="`+z.ID+`.geojson"`)
	_, _ = w.Write(text)
	return nil
}
