package fleetpages

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/keyset"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/web"
	"github.com/kickstand-dev/kickstand/internal/web/mapview"
)

// Size of the map in units.
const mapWidth, mapHeight = 960.0, 600.0

// Limits of the map, which bound its page for any fleet.
const (
	// mapVehicles is the maximum number of vehicles to draw individually. More are
	// clustered, except isolated ones.
	mapVehicles = 60
	// mapSquares is about the number of squares to count.
	mapSquares = 900
	// mapCluster is the width of a cluster's square in units.
	mapCluster = 80.0
	// mapZones and mapShapes limit the zones and the bytes of their shapes.
	mapZones  = 40
	mapShapes = 12 << 10
	// mapRows is the maximum length of the list beside the map.
	mapRows = 24
)

// mapPage is the body of the map page.
type mapPage struct {
	Topics  string
	Filters filters
	View    map[string]string // parameters that forms carry over; the view only if it is given
	Base    string

	ground
	Nearer       string
	Farther      string
	North, South string
	East, West   string
	All          string

	Clusters []cluster
	Vehicles []dot
	Rest     string // link to the vehicles after these, at the maximum zoom; empty: none
	First    string // link back to the first ones
	Count    string
	Note     string // if the list is incomplete
	Heat     []heatLevel
	HeatText string
	Search   placeSearch
	Panel    *panel
	Nearest  *nearestList
	NearHere string // link to the vehicles nearest to the center
	Legend   []legend
	Types    []legend
	None     bool // the fleet seems to have no vehicle

	near *geo.Position // the place of Nearest
}

// ground is the part of a map that does not depend on vehicles.
type ground struct {
	Width, Height float64
	Z, X, Y       string // the view, for the script
	Bar           int
	BarText       string
	Zones         []drawnZone
	Back          background
}

// newGround returns the ground of a view, without zones.
func (p *pages) newGround(v mapview.View) ground {
	bar, meters := v.ScaleBar()
	return ground{
		Back:  p.background(v),
		Width: mapWidth, Height: mapHeight, Bar: bar, BarText: distance(meters),
		Z: strconv.FormatFloat(math.Round(v.Zoom*100)/100, 'f', -1, 64), X: strconv.FormatFloat(v.X, 'f', 9, 64), Y: strconv.FormatFloat(v.Y, 'f', 9, 64),
	}
}

// drawnZone is a zone on the map.
type drawnZone struct {
	Name, Path, Link string
	Type             fleet.ZoneType
}

// cluster is a group of near vehicles.
type cluster struct {
	X, Y, R string
	Count   string
	Link    string
	n       int64
}

// Text is the number in words.
func (c cluster) Text() string { return web.Count(c.n, "%d vehicle", "%d vehicles") }

// dot is a vehicle on the map.
type dot struct {
	ID, Code string
	X, Y     string
	State    fleet.VehicleState
	Chip     web.Badge
	Shape    string
	Link     string
	Chosen   bool
	Task     bool // has open tasks
	Alert    bool // has raised alerts
}

// panel describes the selected vehicle.
type panel struct {
	Vehicle fleet.Vehicle
	State   web.Badge
	Type    string
	Battery string
	Seen    web.Time
	Link    string
	Close   string
	Ride    string
}

// legend explains a symbol.
type legend struct {
	Class, Shape, Text string
}

// vehicleShapes are the symbols of states; colour is never the only difference.
var vehicleShapes = map[fleet.VehicleState]string{
	fleet.Available:       "M0-6a6 6 0 0 1 0 12 6 6 0 0 1 0-12z",
	fleet.OnTrip:          "M0-6.500 6 5H-6z",
	fleet.VehicleReserved: "M0-6a6 6 0 0 1 0 12 6 6 0 0 1 0-12zM0-2.500a2.500 2.500 0 0 0 0 5 2.500 2.500 0 0 0 0-5z",
	fleet.NonOperational:  "M-5-5H5V5H-5z",
	fleet.NonContactable:  "M-5-5H5V5H-5zM-2-2V2H2V-2z",
	fleet.Missing:         "M0-7.500 7.500 0 0 7.500-7.500 0z",
	fleet.Removed:         "M-2-5H2V-2H5V2H2V5H-2V2H-5V-2H-2z",
}

// mapStates are the states of the legend, in order.
var mapStates = [...]fleet.VehicleState{
	fleet.Available, fleet.VehicleReserved, fleet.OnTrip, fleet.NonOperational, fleet.NonContactable, fleet.Missing, fleet.Removed,
}

// zoneTypes are the types of zones with their labels.
var zoneTypes = [...]web.Option{
	{Value: string(fleet.ServiceArea), Label: "Service area"}, {Value: string(fleet.Parking), Label: "Parking"},
	{Value: string(fleet.NoParking), Label: "No parking"}, {Value: string(fleet.Slow), Label: "Slow"},
	{Value: string(fleet.NoRide), Label: "No riding"}, {Value: string(fleet.CustomZone), Label: "Custom rules"},
}

func zoneTypeLabel(t fleet.ZoneType) string {
	for _, o := range zoneTypes {
		if o.Value == string(t) {
			return o.Label
		}
	}
	return string(t)
}

// showMap shows the vehicles on a map.
func (p *pages) showMap(w http.ResponseWriter, r *web.Request) error {
	ctx := r.Context()
	subs, fields, err := p.subaccountChoices(ctx, r)
	if err != nil {
		return err
	}
	b := mapPage{
		Topics: p.topic(fleet.VehicleKind) + " " + p.topic(fleet.AlertRecordKind) + " " + p.topic(fleet.ZoneKind), Base: p.base,
		Filters: filters{Fields: append(fields, web.Field{Name: "state", Label: "State", Type: "select", Options: options(mapStates[:], "Any", func(s fleet.VehicleState) web.Option {
			return web.Option{Value: string(s), Label: web.BadgeFor(stateBadges, s).Text}
		})}, web.Field{Name: "type", Label: "Vehicle type", Type: "select", Options: anyType(subs)}, web.Field{Name: "heat", Label: "Heat map", Type: "select", Options: heatOptions})},
	}
	b.Filters.parse(r)
	only := fleet.VehicleFilter{Subaccount: b.Filters.list("subaccount"), VehicleTypeID: b.Filters.list("type")}
	if state := b.Filters.get("state"); state != "" {
		only.State = []fleet.VehicleState{fleet.VehicleState(state)}
	}
	b.Filters.All = ""
	if only.Subaccount != nil || only.State != nil || only.VehicleTypeID != nil {
		b.Filters.All = r.URL.Path
	}

	search, there, found := findPlace(r, b.kept())
	b.Search, b.near = search, nearPlace(r.URL.Query())
	if b.near != nil {
		if b.Nearest, err = p.findNearest(ctx, r, b.near, only); err != nil {
			return err
		}
	}
	v, given := mapview.Parse(mapWidth, mapHeight, r.URL.Query()) // as moved since the search
	if !given {
		v, given = there, found
	}
	// A new selection of the subaccount moves the view.
	if q := r.URL.Query(); q.Has("was") && q.Get("was") != b.Filters.get("subaccount") {
		given = false
	}
	if !given && b.Nearest != nil {
		v, given = b.Nearest.view(b.near), true
	}
	if !given {
		boxes, err := p.extent(ctx, r, only.Subaccount)
		if err != nil {
			return err
		}
		b.None = len(boxes) == 0
		v = mapview.Fit(mapWidth, mapHeight, boxes)
	}
	chosen := r.URL.Query().Get("vehicle")
	b.ground = p.newGround(v)
	link := b.navigate(r, v, given, chosen)
	if b.Nearest != nil {
		b.Nearest.draw(b.near, v, link)
	}
	if err := p.drawZones(ctx, r, &b, v, only.Subaccount); err != nil {
		return err
	}
	if err := p.drawVehicles(ctx, r, &b, v, only, chosen, link); err != nil {
		return err
	}
	if chosen != "" {
		if b.Panel, err = p.panel(ctx, r, subs, chosen, link(v, "")); err != nil {
			return err
		}
	}
	if b.Heat, b.HeatText, err = p.heat(ctx, r, v, b.Filters.get("heat"), only.Subaccount); err != nil {
		return err
	}
	if b.HeatText != "" && (only.State != nil || only.VehicleTypeID != nil) {
		b.HeatText += ", by vehicles of any state and type"
	}
	for _, s := range mapStates {
		b.Legend = append(b.Legend, legend{"dot " + string(s), vehicleShapes[s], web.BadgeFor(stateBadges, s).Text})
	}
	b.Legend = append(b.Legend, legend{"task-mark", "M0-4a4 4 0 0 1 0 8 4 4 0 0 1 0-8z", "Open task"}, legend{"alert-mark", "M0-4 4 4H-4z", "Alert"})
	for _, t := range zoneTypes {
		b.Types = append(b.Types, legend{"zone " + t.Value, "", t.Label})
	}
	page := p.page(r, "/map", "Map", b)
	page.Class = "environmental full"
	page.Scripts = []string{"map.js"}
	allowPosition(w)
	return p.Render(w, r, "map", page)
}

// navigate sets the links that move the view, and the fields by which forms keep it if it is
// given. link returns the address of a view with a selected vehicle.
func (b *mapPage) navigate(r *web.Request, v mapview.View, given bool, chosen string) (link func(v mapview.View, chosen string) string) {
	// Links carry filters and selection, forms the view.
	kept := b.kept()
	here := v
	link = func(v mapview.View, chosen string) string {
		q := maps.Clone(kept)
		v.WriteQuery(q)
		if from := r.URL.Query().Get("after"); from != "" && v == here {
			q.Set("after", from)
		}
		if chosen != "" {
			q.Set("vehicle", chosen)
		}
		return "?" + q.Encode()
	}
	q := url.Values{}
	v.WriteQuery(q)
	const third = 1.0 / 3
	b.Nearer, b.Farther = link(v.Pan(0, 0, 1), chosen), link(v.Pan(0, 0, -1), chosen)
	b.North, b.South = link(v.Pan(0, -mapHeight*third, 0), chosen), link(v.Pan(0, mapHeight*third, 0), chosen)
	b.West, b.East = link(v.Pan(-mapWidth*third, 0, 0), chosen), link(v.Pan(mapWidth*third, 0, 0), chosen)
	all := maps.Clone(kept)
	all.Del("near")
	b.All = web.Address(r.URL.Path, all)
	b.View = make(map[string]string)
	if b.near != nil {
		b.View["near"] = kept.Get("near")
		b.Nearest.Close = "?" + viewQuery(all, v)
	}
	if given {
		maps.Copy(b.View, map[string]string{"z": q.Get("z"), "lat": q.Get("lat"), "lng": q.Get("lng"), "was": b.Filters.get("subaccount")})
	}
	all.Set("near", q.Get("lat")+","+q.Get("lng"))
	b.NearHere = "?" + viewQuery(all, v)
	return link
}

// kept returns the parameters of the filters.
func (b *mapPage) kept() url.Values {
	kept := url.Values{}
	for _, f := range b.Filters.Fields {
		if f.Value != "" {
			kept.Set(f.Name, f.Value)
		}
	}
	if b.near != nil {
		kept.Set("near", placeText(b.near.Lat, b.near.Lng))
	}
	return kept
}

// viewQuery returns parameters with a view.
func viewQuery(kept url.Values, v mapview.View) string {
	q := url.Values{}
	maps.Copy(q, kept)
	v.WriteQuery(q)
	return q.Encode()
}

// anyType lists the vehicle types of subaccounts.
func anyType(subs []fleet.Subaccount) []web.Option {
	list := []web.Option{{Label: "Any"}}
	for _, s := range subs {
		for _, t := range s.VehicleTypes {
			o := web.Option{Value: t.ID, Label: t.Name}
			if len(subs) > 1 {
				o.Label += ", " + s.Name
			}
			list = append(list, o)
		}
	}
	return list
}

// extent returns the bounds of zones and some vehicles. If these are far apart, it
// is the area with most of them, since one map cannot show two cities.
func (p *pages) extent(ctx context.Context, r *web.Request, subaccounts []string) ([]geo.Box, error) {
	var boxes []geo.Box
	docs, _, err := p.Fleet.ListVehicles(ctx, p.DB, r.OrganizationID, fleet.VehicleQuery{Subaccount: subaccounts, Limit: 100})
	if err != nil {
		return nil, err
	}
	vehicles, err := decode[fleet.Vehicle](docs)
	if err != nil {
		return nil, err
	}
	for _, v := range vehicles {
		if at := v.Location; at != nil {
			boxes = append(boxes, geo.Box{MinLng: at.Lng, MinLat: at.Lat, MaxLng: at.Lng, MaxLat: at.Lat})
		}
	}
	if docs, _, err = p.Fleet.ListZones(ctx, p.DB, r.OrganizationID, fleet.ZoneQuery{Subaccount: subaccounts, Limit: mapZones}); err != nil {
		return nil, err
	}
	for i := range docs {
		z, err := readOutlined(&docs[i])
		if err != nil {
			return nil, err
		}
		boxes = append(boxes, mapview.Bounds(z.Geometry.Coordinates))
	}
	const city = 8.0 // zoom at which a city fills the map
	if mapview.Fit(mapWidth, mapHeight, boxes).Zoom >= city {
		return boxes, nil
	}
	middle := func(b geo.Box) (lng, lat float64) { return (b.MinLng + b.MaxLng) / 2, (b.MinLat + b.MaxLat) / 2 }
	here := make(map[[2]int]int)
	var most [2]int
	for _, b := range boxes {
		lng, lat := middle(b)
		at := [2]int{int(math.Floor(lng)), int(math.Floor(lat))}
		if here[at]++; here[at] > here[most] {
			most = at
		}
	}
	return slices.DeleteFunc(boxes, func(b geo.Box) bool {
		lng, lat := middle(b)
		return math.Abs(lng-float64(most[0])-0.5) > 1 || math.Abs(lat-float64(most[1])-0.5) > 1
	}), nil
}

// crowded reports whether vehicles overlap on v, and then returns them as squares.
func crowded(v mapview.View, docs []fleet.Vehicle) (squares []fleet.MapCluster, yes bool) {
	const near, few = 24.0, 4
	here := make(map[[2]int]int)
	for _, of := range docs {
		if at := of.Location; at != nil {
			x, y := v.At(at.Lat, at.Lng)
			cell := [2]int{int(math.Floor(x / near)), int(math.Floor(y / near))}
			here[cell]++
			yes = yes || here[cell] > few
			squares = append(squares, fleet.MapCluster{Box: geo.Box{MinLng: at.Lng, MinLat: at.Lat, MaxLng: at.Lng, MaxLat: at.Lat}, Count: 1, ID: of.ID})
		}
	}
	// At maximum zoom they are drawn anyway.
	return squares, yes && v.Zoom < mapview.MaxZoom
}

// drawZones draws the zones in the view, by precedence from the top.
func (p *pages) drawZones(ctx context.Context, r *web.Request, b *mapPage, v mapview.View, subaccounts []string) error {
	box := v.Box()
	docs, next, err := p.Fleet.ListZones(ctx, p.DB, r.OrganizationID, fleet.ZoneQuery{
		Subaccount: subaccounts, Box: &box, Sort: keyset.Sort{Field: "priority"}, Limit: mapZones,
	})
	if err != nil {
		return err
	}
	if next != nil {
		b.Note = web.Sprintf("Only the %d zones of highest priority are shown.", mapZones)
	}
	for i := range docs {
		z, err := readOutlined(&docs[i])
		if err != nil {
			return err
		}
		if path := v.Path(z.Geometry.Coordinates, mapShapes/len(docs)); path != "" {
			b.Zones = append(b.Zones, drawnZone{z.Name + ", " + zoneTypeLabel(z.Type), path, p.base + "/zones/" + z.ID, z.Type})
		}
	}
	slices.Reverse(b.Zones)
	return nil
}

// drawVehicles draws the vehicles in the view.
func (p *pages) drawVehicles(ctx context.Context, r *web.Request, b *mapPage, v mapview.View, only fleet.VehicleFilter, chosen string, link func(v mapview.View, chosen string) string) error {
	box := v.Box()
	query := fleet.VehicleQuery{Subaccount: only.Subaccount, State: only.State, VehicleTypeID: only.VehicleTypeID, Box: &box, Limit: mapVehicles}
	deepest := v.Zoom >= mapview.MaxZoom
	if deepest {
		query.After = after(r)
	}
	docs, next, err := p.Fleet.ListVehicles(ctx, p.DB, r.OrganizationID, query)
	if err != nil {
		return err
	}
	list, err := decode[fleet.Vehicle](docs)
	if err != nil {
		return err
	}
	total := int64(len(list))
	switch {
	case deepest && (next != nil || query.After != nil):
		// No zoom divides a cluster: the vehicles are on pages of the list.
		if total, err = p.pageVehicles(ctx, r, b, v, query, next, only); err != nil {
			return err
		}
	case next != nil:
		squares, err := p.Fleet.CountVehicles(ctx, p.DB, r.OrganizationID, box, only, mapSquares)
		if err != nil {
			return err
		}
		var alone []string
		b.Clusters, alone, total = clusters(v, squares, func(v mapview.View) string { return link(v, chosen) })
		if docs, err = p.Fleet.VehiclesByID(ctx, p.DB, r.OrganizationID, alone[:min(len(alone), mapVehicles)]); err != nil {
			return err
		}
		if list, err = decode[fleet.Vehicle](docs); err != nil {
			return err
		}
	default:
		if squares, yes := crowded(v, list); yes {
			var alone []string
			b.Clusters, alone, total = clusters(v, squares, func(v mapview.View) string { return link(v, chosen) })
			list = slices.DeleteFunc(list, func(of fleet.Vehicle) bool { return !slices.Contains(alone, of.ID) })
		}
	}
	slices.SortFunc(list, func(a, b fleet.Vehicle) int { return cmp.Compare(a.Code, b.Code) })
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	tasks, err := p.Fleet.VehiclesWithOpenTasks(ctx, p.DB, r.OrganizationID, ids)
	if err != nil {
		return err
	}
	raised, err := p.Fleet.RaisedAlerts(ctx, p.DB, r.OrganizationID, ids...)
	if err != nil {
		return err
	}
	alerts := make(map[string]bool, len(raised))
	for i := range raised {
		alerts[raised[i].VehicleID] = true
	}
	for _, of := range list {
		if of.Location == nil {
			continue
		}
		x, y := v.At(of.Location.Lat, of.Location.Lng)
		b.Vehicles = append(b.Vehicles, dot{
			ID: of.ID, Code: of.Code, X: mapview.Coordinate(x), Y: mapview.Coordinate(y), State: of.State, Chip: web.BadgeFor(stateBadges, of.State), Shape: vehicleShapes[of.State],
			Link: link(v, of.ID), Chosen: of.ID == chosen, Task: tasks[of.ID], Alert: alerts[of.ID],
		})
	}
	b.Count = web.Count(total, "%d vehicle", "%d vehicles")
	return nil
}

// pageVehicles sets the links between pages of the vehicles in v, and returns the number of all.
func (p *pages) pageVehicles(ctx context.Context, r *web.Request, b *mapPage, v mapview.View, query fleet.VehicleQuery, next *keyset.Cursor, only fleet.VehicleFilter) (total int64, err error) {
	squares, err := p.Fleet.CountVehicles(ctx, p.DB, r.OrganizationID, *query.Box, only, mapSquares)
	if err != nil {
		return 0, err
	}
	for _, s := range squares {
		total += s.Count
	}
	here := b.kept()
	v.WriteQuery(here)
	if query.After != nil {
		b.First = "?" + here.Encode()
	}
	if next != nil {
		text, err := json.Marshal(next)
		if err != nil {
			return 0, fmt.Errorf("the place in the list of a map: %w", err)
		}
		here.Set("after", base64.RawURLEncoding.EncodeToString(text))
		b.Rest = "?" + here.Encode()
	}
	return total, nil
}

// clusters merges squares into clusters at the positions of their vehicles. alone
// has the ids of single vehicles, total the number of vehicles counted.
func clusters(v mapview.View, squares []fleet.MapCluster, link func(mapview.View) string) (list []cluster, alone []string, total int64) {
	type sum struct {
		x, y  float64
		n     int64
		id    string
		boxes []geo.Box
	}
	cells := make(map[[2]int]*sum)
	for _, s := range squares {
		x, y := v.At((s.Box.MinLat+s.Box.MaxLat)/2, (s.Box.MinLng+s.Box.MaxLng)/2)
		if x < -mapCluster/2 || y < -mapCluster/2 || x > mapWidth+mapCluster/2 || y > mapHeight+mapCluster/2 {
			continue
		}
		at := [2]int{int(math.Floor(x / mapCluster)), int(math.Floor(y / mapCluster))}
		c := cells[at]
		if c == nil {
			c = &sum{}
			cells[at] = c
		}
		c.x += x * float64(s.Count)
		c.y += y * float64(s.Count)
		c.n += s.Count
		c.id, c.boxes = s.ID, append(c.boxes, s.Box)
		total += s.Count
	}
	for _, at := range slices.SortedFunc(maps.Keys(cells), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		c := cells[at]
		if c.n == 1 && len(alone) < mapVehicles {
			alone = append(alone, c.id)
			continue
		}
		to := mapview.Fit(mapWidth, mapHeight, c.boxes)
		to = to.Pan(0, 0, max(0, v.Zoom+1-to.Zoom))
		r := min(30, 11+3*math.Log2(float64(c.n)+1))
		list = append(list, cluster{mapview.Coordinate(c.x / float64(c.n)), mapview.Coordinate(c.y / float64(c.n)), mapview.Coordinate(r), web.Number(c.n), link(to), c.n})
	}
	slices.SortFunc(list, func(a, b cluster) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.Link, b.Link)) })
	slices.Sort(alone)
	return list, alone, total
}

// Rows are the clusters in the list.
func (b mapPage) Rows() []cluster { return b.Clusters[:min(len(b.Clusters), mapRows)] }

// Dots are the vehicles in the list: all on a page of many.
func (b mapPage) Dots() []dot {
	if b.Rest != "" || b.First != "" {
		return b.Vehicles
	}
	return b.Vehicles[:min(len(b.Vehicles), mapRows)]
}

// More is the number of omitted rows.
func (b mapPage) More() int {
	return len(b.Clusters) - len(b.Rows()) + len(b.Vehicles) - len(b.Dots())
}

// panel returns the panel of the selected vehicle; nil if it is deleted.
func (p *pages) panel(ctx context.Context, r *web.Request, subs []fleet.Subaccount, id, without string) (*panel, error) {
	v, err := p.Fleet.Vehicle(ctx, p.DB, r.OrganizationID, id)
	if problem.Of(err) == problem.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := &panel{Vehicle: v, State: web.BadgeFor(stateBadges, v.State), Seen: r.Time(v.LastReportedAt.Std()), Link: p.base + "/vehicles/" + v.ID, Close: without, Battery: "unknown"}
	if v.BatteryPercent != nil {
		c.Battery = strconv.FormatInt(*v.BatteryPercent, 10) + " %"
	}
	if v.CurrentRideID != "" {
		c.Ride = p.base + "/rides/" + string(v.CurrentRideID)
	}
	for _, s := range subs {
		for _, t := range s.VehicleTypes {
			if t.ID == v.VehicleTypeID {
				c.Type = t.Name
			}
		}
	}
	return c, nil
}

// Empty is the placeholder of a map without vehicles.
func (b mapPage) Empty() web.Empty {
	return web.Empty{Text: "No vehicle has a location yet.", Path: b.Base + "/vehicles", Label: "View vehicles"}
}
