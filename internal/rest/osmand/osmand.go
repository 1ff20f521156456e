// Package osmand takes the reports of trackers that speak the OsmAnd protocol, as Traccar defines
// it: one position per GET or POST, with its values as parameters, or in a document as Traccar
// Client 9 posts it. The path has the secret of a tracker, which names its vehicle.
//
// A tracker repeats a report until the answer is 200. So that is the answer to all that were
// stored, duplicates and late ones included, and to those that are older than the tracks that are
// stored; 400 is that to values which no repetition mends. Optional ones are left out if they are
// out of range, since the position counts without them.
package osmand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account/browser"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/fleet/track"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/rest"
	"github.com/kickstand-dev/kickstand/internal/rfc3339"
	"github.com/kickstand-dev/kickstand/internal/telemetry"
)

// Paths of production and sandbox, before the secret.
const (
	Path        = "/osmand/"
	SandboxPath = "/sandbox" + Path
)

// Requests a minute.
const (
	trackerLimit = 600
	refusalLimit = 60 // with an unknown secret, of an address
)

// maxBody bounds the body of a POST, in bytes.
const maxBody = 64 << 10

// Config has the parts of a [Handler]. All are required.
type Config struct {
	Fleet          *fleet.Service
	DB             *db.DB           // of the fleet
	Limiter        rest.RateLimiter // of windows of a minute
	TrustedProxies []netip.Prefix
	Logger         *slog.Logger
}

// Handler serves one environment. It is safe for concurrent use.
type Handler struct{ Config }

// New returns the handler of one environment, for all paths below [Path] or [SandboxPath].
func New(c Config) *Handler { return &Handler{c} }

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	telemetry.RequestFrom(r.Context()).SetRoute("osmand", Path+"{secret}")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if r.Method != http.MethodGet && r.Method != http.MethodPost {
		w.Header().Set("Allow", "GET, POST")
		refuse(w, http.StatusMethodNotAllowed, "A tracker reports with GET or POST.")
		return
	}
	path := Path
	if !h.Fleet.Live() {
		path = SandboxPath
	}
	status, text, err := h.receive(w, r, strings.TrimPrefix(r.URL.Path, path))
	if err != nil && r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // the tracker is gone
	}
	if err != nil {
		level := slog.LevelError
		if problem.Of(err) == problem.Unavailable {
			level = slog.LevelDebug // logged by the database
		}
		h.Logger.Log(r.Context(), level, "report of a tracker", "error", err)
		w.Header().Set("Retry-After", "5")
		status, text = http.StatusServiceUnavailable, "The report cannot be stored now."
	}
	refuse(w, status, text)
}

// refuse writes an answer; one without a text is no refusal.
func refuse(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	if text != "" {
		fmt.Fprintln(w, text)
	}
}

// receive stores the report of a request and returns its answer.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request, secret string) (status int, text string, err error) {
	ctx := r.Context()
	organizationID, vehicleID, err := h.Fleet.TrackerVehicle(ctx, h.DB, secret)
	switch {
	case problem.Of(err) == problem.NotFound:
		address := rest.AddressBucket(browser.ClientIP(r, h.TrustedProxies))
		if ok, err := h.count(ctx, w, "address "+address, refusalLimit); err != nil || !ok {
			return http.StatusTooManyRequests, "Too many requests of this address had no valid secret.", err
		}
		return http.StatusNotFound, "The address of the tracker is not valid. Create another one with POST /vehicles/{id}/tracker.", nil
	case err != nil:
		return 0, "", err
	}
	if ok, err := h.count(ctx, w, "vehicle "+vehicleID, trackerLimit); err != nil || !ok {
		return http.StatusTooManyRequests, "The tracker reports too often.", err
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	form, refusal := parameters(r)
	if refusal != "" {
		return http.StatusBadRequest, refusal, nil
	}
	report, wrong := parse(form)
	if wrong != "" {
		return http.StatusBadRequest, "The parameter " + wrong + " is missing or not valid.", nil
	}
	var got fleet.TelemetryResult
	err = h.DB.Write(ctx, func(tx *db.Tx) (err error) {
		if report.At == 0 { // it has no clock
			now, err := h.Fleet.Now(ctx, tx, organizationID)
			if err != nil {
				return err
			}
			report.At = now.UnixMilli()
		}
		reports := []fleet.Report{{Vehicle: fleet.VehicleRef{ID: vehicleID}, Data: report, Direct: true}}
		got, err = h.Fleet.RecordTelemetryTx(ctx, tx, organizationID, reports, func(string) bool { return true })
		return err
	})
	if err != nil {
		return 0, "", err
	}
	if got.Rejected > 0 {
		if got.Verdicts[0].Code == "invalid_value" { // older than all tracks: the tracker must go on to later ones
			return http.StatusOK, "", nil
		}
		return http.StatusBadRequest, "The report was rejected: " + got.Verdicts[0].Code + ".", nil
	}
	return http.StatusOK, "", nil
}

// count counts a request, and sets Retry-After if it is one too many.
func (h *Handler) count(ctx context.Context, w http.ResponseWriter, key string, limit int64) (bool, error) {
	s, ok, err := h.Limiter.Acquire(ctx, key, limit)
	if err == nil && !ok {
		w.Header().Set("Retry-After", strconv.FormatInt(int64(math.Ceil(time.Until(s.Reset).Seconds())), 10))
	}
	return ok, err
}

// kphPerKnot converts knots to kilometers per hour.
const kphPerKnot = 1.852

// parameters returns the parameters of a request: those of its form, or of its document. refusal is the
// answer to one that is not well formed.
func parameters(r *http.Request) (form url.Values, refusal string) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); r.Method != http.MethodPost || kind != "application/json" {
		if r.ParseForm() != nil {
			return nil, "The parameters are not well formed."
		}
		return r.Form, ""
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, "The body is incomplete or too large."
	}
	if form, err = parametersOf(text); err != nil {
		return nil, "The body is not valid JSON."
	}
	return form, ""
}

// document is a report of Traccar Client 9. Numbers below 0 are unknown, but for degrees and altitude.
type document struct {
	Location struct {
		Timestamp json.RawMessage `json:"timestamp"`
		Odometer  number          `json:"odometer"` // meters
		Coords    struct {
			Latitude  number `json:"latitude"`
			Longitude number `json:"longitude"`
			Accuracy  number `json:"accuracy"` // meters
			Altitude  number `json:"altitude"` // meters
			Speed     number `json:"speed"`    // meters per second
			Heading   number `json:"heading"`  // degrees
		} `json:"coords"`
		Battery struct {
			Level number `json:"level"` // 1 is full
		} `json:"battery"`
	} `json:"location"`
}

// number is the text of a number; empty for a value of another type.
type number string

// UnmarshalJSON implements [json.Unmarshaler].
func (n *number) UnmarshalJSON(text []byte) error {
	if *n = ""; text[0] == '-' || '0' <= text[0] && text[0] <= '9' {
		*n = number(text)
	}
	return nil
}

// times returns the text of the number multiplied by a factor.
func (n number) times(factor float64) number {
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil {
		return n
	}
	return number(strconv.FormatFloat(f*factor, 'g', -1, 64))
}

// parametersOf returns the values of a document by the names and in the units of parameters. A
// value of another type than expected is absent, apart from the time.
func parametersOf(text []byte) (url.Values, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); !ok {
			return nil, err
		}
	}
	at := string(d.Location.Timestamp)
	switch {
	case at == "null":
		at = ""
	case strings.HasPrefix(at, `"`):
		if err := json.Unmarshal(d.Location.Timestamp, &at); err != nil {
			return nil, err
		}
	}
	c := &d.Location.Coords
	form := url.Values{"timestamp": {at}}
	for name, n := range map[string]number{
		"lat": c.Latitude, "lon": c.Longitude, "accuracy": c.Accuracy, "altitude": c.Altitude, "speed": c.Speed.times(3.6 / kphPerKnot), "bearing": c.Heading,
		"batt": d.Location.Battery.Level.times(100), "odometer": d.Location.Odometer,
	} {
		form.Set(name, string(n))
	}
	return form, nil
}

// parse reads the parameters of a report. wrong names one that is missing or not valid. Optional
// ones that are out of range count as unknown.
func parse(form url.Values) (r track.Report, wrong string) {
	if !setTime(&r, form.Get("timestamp")) {
		return r, "timestamp"
	}
	lat, lon, bearing := form.Get("lat"), form.Get("lon"), form.Get("bearing")
	if both := form.Get("location"); both != "" && lat == "" && lon == "" {
		lat, lon, _ = strings.Cut(both, ",")
		lat, lon = strings.TrimSpace(lat), strings.TrimSpace(lon)
	}
	if bearing == "" {
		bearing = form.Get("heading")
	}
	for _, f := range []struct {
		name, text string
		field      track.Field
		low, high  float64
		parts      float64 // of the parameter's unit
		required   bool
	}{
		{"lat", lat, track.Lat, -90, 90, 1e6, true},
		{"lon", lon, track.Lng, -180, 180, 1e6, true},
		{"accuracy", form.Get("accuracy"), track.Accuracy, 0, 1e7, 10, false},
		{"altitude", form.Get("altitude"), track.Altitude, -1e5, 1e5, 10, false},
		{"speed", form.Get("speed"), track.Speed, 0, 2000, 10 * kphPerKnot, false},
		{"bearing", bearing, track.Heading, 0, 360, 10, false},
		{"batt", form.Get("batt"), track.Battery, 0, 100, 1, false},
		{"odometer", form.Get("odometer"), track.Odometer, 0, 1e10, 1, false},
	} {
		if f.text == "" && !f.required {
			continue
		}
		n, err := strconv.ParseFloat(f.text, 64)
		switch inRange := f.low <= n && n <= f.high; {
		case err != nil && !errors.Is(err, strconv.ErrRange), f.required && !inRange:
			return r, f.name
		case inRange:
			r.Set(f.field, int64(math.Round(n*f.parts)))
		}
	}
	return r, ""
}

// setTime sets the time of a report: seconds or milliseconds since 1970, RFC 3339, or date and
// time in UTC with a space between. Without a time it is 0.
func setTime(r *track.Report, text string) bool {
	if text == "" {
		return true
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < 1<<31 {
			n *= 1000
		}
		r.At = n
		return 0 < n && n < 1<<47
	}
	if day, clock, ok := strings.Cut(text, " "); ok {
		text = day + "T" + clock + "Z"
	}
	t, err := rfc3339.Parse(text)
	r.At = t.UnixMilli()
	return err == nil && r.At > 0
}
