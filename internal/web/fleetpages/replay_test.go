package fleetpages_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/geo"
	"github.com/kickstand-dev/kickstand/internal/web/webtest"
)

// TestReplay: the page of a ride has the reports of its time, as a line, for the script, and as a
// table; without reports it has none of these.
func TestReplay(t *testing.T) {
	y := newYard(t)
	l := furnish(y)
	ride := l.ride(fleet.Active)
	path := "/fleet/rides/" + ride.ID
	if d := y.agent.Page(path); len(d.WithAttr("class", "map-track"))+len(d.WithAttr("class", "replay")) != 0 {
		t.Error("a ride without reports has a track")
	}
	report := func(at time.Time, lat float64, speed int64) {
		l.write(func(ctx context.Context, tx *db.Tx) error {
			var r track.Report
			r.At = at.UnixMilli()
			r.Set(track.Lat, geo.Millionths(lat))
			r.Set(track.Lng, geo.Millionths(13.4))
			if speed >= 0 {
				r.Set(track.Speed, speed)
			}
			result, err := l.RecordTelemetryTx(ctx, tx, l.organization.ID, []fleet.Report{{Vehicle: fleet.VehicleRef{ID: ride.VehicleID}, Data: r}}, func(string) bool { return true })
			if err == nil && result.Rejected > 0 {
				t.Errorf("got %+v", result)
			}
			return err
		})
	}
	begin := ride.StartedAt.Std()
	report(begin.Add(-time.Minute), 52.4, 0) // of another ride
	for i := range 5 {
		report(begin.Add(time.Duration(i)*time.Millisecond), 52.5+float64(i)/1000, int64(180+10*i))
	}
	d := y.agent.Page(path)
	d.Want("Track: 5 positions in", "22 km/h", "445 m", "52.50400, 13.40000")
	box := d.WithAttr("class", "replay")
	if len(box) != 1 || !webtest.Has(box[0], "hidden") {
		t.Fatal("the replay needs no script")
	}
	points := strings.Fields(webtest.Attr(box[0], "data-replay"))
	if len(points) != 5 || len(strings.Split(points[0], ",")) != 4 {
		t.Errorf("got %v", points)
	}

	// A vehicle that stands has two points, too.
	ride = l.ride(fleet.Active)
	for i := range 3 {
		report(ride.StartedAt.Std().Add(time.Duration(i)*time.Millisecond), 52.5, 0)
	}
	box = y.agent.Page("/fleet/rides/"+ride.ID).WithAttr("class", "replay")
	if len(box) != 1 || len(strings.Fields(webtest.Attr(box[0], "data-replay"))) != 2 {
		t.Errorf("got %v", box)
	}

	// The sandbox's rides of the last days have tracks that lead from start to end.
	found := 0
	for _, at := range links(y.agent.Page("/sandbox/fleet/rides?status=completed&sort=-ended_at"), "/sandbox/fleet/rides/ride_")[:8] {
		d := y.agent.Page(at)
		tracks, replay := d.WithAttr("class", "map-track"), d.WithAttr("class", "replay")
		if len(tracks) != 1 || len(replay) != 1 {
			continue
		}
		found++
		seconds := 0
		for point := range strings.FieldsSeq(webtest.Attr(replay[0], "data-replay")) {
			text, _, _ := strings.Cut(point, ",")
			n, err := strconv.Atoi(text)
			if err != nil || n < seconds {
				t.Fatalf("%s: got the point %s", at, point)
			}
			seconds = n
		}
		if seconds == 0 {
			t.Errorf("%s lasts no time", at)
		}
		w := y.agent.Get(at)
		if w.Body.Len() > maxPage {
			t.Errorf("%s: got %d bytes", at, w.Body.Len())
		}
	}
	if found < 4 {
		t.Errorf("%d of 8 recent rides have a track", found)
	}
}
