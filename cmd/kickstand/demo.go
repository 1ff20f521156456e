package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/app"
	"github.com/kickstand-dev/kickstand/internal/connection"
	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/fleet"
	"github.com/kickstand-dev/kickstand/internal/webhook"

	"github.com/BurntSushi/toml"
)

// openStreetMap is the address of the tiles of OpenStreetMap. Its usage policy,
// https://operations.osmfoundation.org/policies/tiles/, permits the few that a person looks at;
// package tiles obeys it.
const openStreetMap = "https://tile.openstreetmap.org/{z}/{x}/{y}.png"

// Constants of the demo.
const (
	demoFolder   = "kickstand-demo"
	demoMarker   = "this-is-a-kickstand-demo" // a folder without it must not be deleted
	demoOrg      = "Demo Wheels"
	demoAdmin    = "admin@demo.example"
	demoNumber   = "+14155550100"
	demoCaller   = "+14155550123"
	demoMailbox  = "support@demo.example"
	demoReceiver = "http://127.0.0.1:8090/" // address of `kickstand listen`
)

type demoCmd struct {
	Still bool `help:"Let nobody write or answer while the demo runs."`
}

func (*demoCmd) Help() string {
	return `Creates ./kickstand-demo again at every start: an organization with an admin and
three agents, connected channels, 200 tickets and rides of 90 days, and a webhook
to the address of "kickstand listen". "kickstand trigger" finds the demo in the
working directory.

No message leaves this machine: a stand-in takes the place of each provider. It
shows what would have been sent, and reports it as delivered. Mail is shown on
the page of the mailbox. Now and then a customer writes, and an agent answers.

Maps that you open have tiles of OpenStreetMap, if it can be reached
(--map-tiles=none: only the built-in map).`
}

// demoFile is the part of the demo's configuration file, written for trigger and listen,
// that has its address.
type demoFile struct {
	Listen  string `toml:"listen"`
	BaseURL string `toml:"base-url"`
}

// Run serves the demo until ctx ends.
func (d *demoCmd) Run(ctx context.Context, e *env) error {
	folder, err := filepath.Abs(demoFolder)
	if err != nil {
		return err
	}
	data := demoData{folder: folder, secrets: make(map[string]string), app: new(demoAppChannel), listenSecret: rand.Text(), password: strings.ToLower(rand.Text()[:12])}
	file, err := e.useDemo(data)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	switch e.MapTiles {
	case openStreetMap:
		data.maps = "tiles of OpenStreetMap, fetched for the maps that you open (--map-tiles=none: none)"
	case "none":
		data.maps = "built in"
	default:
		data.maps = "your own tiles"
	}
	providers := e.newProviders()
	if err := providers.serve(ctx); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	e.SMSAPIURL, e.VoiceAPIURL, e.ChatAPIURL = providers.url, providers.url, providers.url
	e.BusinessMessagingAPIURL, e.SocialMessengerAPIURL = providers.url, providers.url
	data.providers = providers.url
	set, err := e.settings()
	if err != nil {
		return err
	}
	set.Certificates = providers
	ln, err := e.listen()
	if err != nil {
		return err
	}
	defer ln.Close()
	if err := recreateDemo(ctx, folder); err != nil {
		return err
	}
	return e.serve(ctx, set, ln, func(a *app.App) error {
		data.here = ln.Addr().String()
		file["listen"], file["base-url"] = data.here, a.BaseURL
		if err := writeDemoFile(folder, file); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		providers.report = func(ctx context.Context, channel string, t *triggerCmd, event string) error {
			return data.post(ctx, a.BaseURL, channel, event, t, nil)
		}
		shown, company, err := createDemo(ctx, a, data)
		if err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		file["trigger-api-channel"], file["trigger-api-secret"] = data.app.id, data.app.secret
		if err := writeDemoFile(folder, file); err != nil {
			return fmt.Errorf("demo: %w", err)
		}
		if !d.Still {
			go company.live(ctx, a, data, shown.Organization, e.logger())
		}
		return e.print(shown, shown.print)
	})
}

// writeDemoFile replaces the demo's configuration file. Readers see the previous or the new one.
func writeDemoFile(folder string, file map[string]any) error {
	text, err := toml.Marshal(file)
	if err != nil {
		return err
	}
	name := filepath.Join(folder, "kickstand.toml")
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// useDemo changes the settings to those of the demo, and returns its configuration file without
// addresses. It adds the channels' secrets to data.
func (e *env) useDemo(data demoData) (file map[string]any, err error) {
	file = map[string]any{"data": data.folder, "listen-secret": data.listenSecret, "allow-private-receivers": true}
	e.Data, e.DatabaseURL, e.BlobURL, e.SMTPURL, e.EmailDeliveryAPIKey, e.SecretKey = data.folder, "", "", "", "", ""
	for _, c := range triggers() {
		if c.secret == "" {
			continue
		}
		secret := rand.Text()
		if c.newSecret != nil {
			if secret, err = c.newSecret(); err != nil {
				return nil, err
			}
		}
		*e.secretLists()[c.name], file[c.secret], data.secrets[c.name] = []string{secret}, secret, secret
	}
	e.SignUp, e.AllowNoMail = "open", true
	e.PaymentsAPIKey = "" // no payments in the demo
	if e.MapTiles == "" {
		e.MapTiles = openStreetMap
	}
	e.AllowPrivateReceivers, e.Roles = true, []string{"web", "worker"}
	if e.LogLevel == "info" {
		e.LogLevel = "warn" // keeps its output readable
	}
	return file, nil
}

// shownDemo is the printed form of a running demo.
type shownDemo struct {
	URL          string `json:"url"`
	Email        string `json:"email"`
	Password     string `json:"password"`
	Organization string `json:"organization"` // id
	LiveKey      string `json:"live_key"`     // for the helpdesk's REST API
	FleetLiveKey string `json:"fleet_live_key"`
	FleetTestKey string `json:"fleet_test_key"` // for the fleet's sandbox
	Mailbox      string `json:"mailbox"`
	Docs         string `json:"docs"`
	FleetDocs    string `json:"fleet_docs"`
	Data         string `json:"data"`
	Maps         string `json:"maps"` // where the background of maps comes from
}

// createDemo creates the organization with its records and API keys.
func createDemo(ctx context.Context, a *app.App, data demoData) (shownDemo, *demoCompany, error) {
	organization, company, fleetKeys, err := fillDemo(ctx, a, data)
	if err != nil {
		return shownDemo{}, nil, err
	}
	_, key, err := a.Keys.Create(ctx, apikey.New{
		OrganizationID: organization, Service: apikey.Helpdesk, Environment: apikey.Live, Name: "Demo",
		Permissions: apikey.Permissions{Level: apikey.Admin},
	})
	if err != nil {
		return shownDemo{}, nil, err
	}
	return shownDemo{
		a.BaseURL, demoAdmin, data.password, organization, key.Reveal(), fleetKeys[apikey.Live], fleetKeys[apikey.Test],
		a.BaseURL + "/dev/mailbox", a.BaseURL + "/api/docs", a.BaseURL + "/docs/fleet", data.folder, data.maps,
	}, company, nil
}

func (d shownDemo) print(w io.Writer) {
	fmt.Fprintf(w, `Kickstand is running at %s

  sign in as    %s
  password      %s
  mailbox       %s
  data          %s (created again at every start)
  maps          %s

  helpdesk API  %s
  key           %s
  fleet API     %s
  key           %s
  sandbox key   %s

Try next, each in another terminal in this folder:

  kickstand listen                                see webhooks arrive, verified
  kickstand trigger sms                           a customer writes: a ticket is created
  kickstand trigger sms --text "Still waiting"    the same customer: the same ticket
  kickstand trigger email                         a customer sends a mail
  kickstand trigger payments --event invoice.payment_failed --to %s
                                                  the card was refused: see the mailbox

The fleet, and the public feed of it, which needs no key:

  curl -H 'Authorization: Bearer %s' \
    '%s/sandbox/v1/vehicles?lat=52.52&lng=13.41&radius_meters=5000&state=available'
  curl %s/gbfs/v3/manifest.json

(From a checkout: go run ./cmd/kickstand instead of kickstand.) Ctrl-C ends.
`, d.URL, d.Email, d.Password, d.Mailbox, d.Data, d.Maps, d.Docs, d.LiveKey,
		d.FleetDocs, d.FleetLiveKey, d.FleetTestKey, d.Organization, d.FleetTestKey, d.URL, d.URL)
}

// recreateDemo deletes the previous demo and creates the folder.
func recreateDemo(ctx context.Context, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(entries) > 0 {
		if _, err := os.Stat(filepath.Join(folder, demoMarker)); err != nil {
			return fmt.Errorf("%s exists and was not created by the demo; move it away or start the demo in another folder", folder)
		}
		if at, runs := runningDemo(ctx, folder); runs {
			return fmt.Errorf("the demo in %s runs already, at %s; stop it first, or start another one in another folder", folder, at)
		}
		if err := os.RemoveAll(folder); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, demoMarker), []byte("Created by `kickstand demo`, which deletes it at the next start.\n"), 0o600)
}

// runningDemo reports whether the demo in folder responds, and its address.
func runningDemo(ctx context.Context, folder string) (at string, runs bool) {
	var file demoFile
	if _, err := toml.DecodeFile(filepath.Join(folder, "kickstand.toml"), &file); err != nil {
		return "", false // it did not start completely
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+file.Listen+"/healthz", nil)
	if err != nil {
		return "", false
	}
	return file.BaseURL, sendExpectingOK(req) == nil
}

// demoConnections has a connection for every channel with a trigger and an endpoint of its own.
var demoConnections = []connection.New{
	{Channel: "sms", Address: demoNumber, Name: "Demo number"},
	{Channel: "voice", Address: demoTelephone, Name: "Demo telephone"},
	{Channel: "email-raw", Address: demoMailbox, Name: "Support mailbox"},
	{Channel: "email-form", Address: demoFormBox, Name: "Mailbox of style A"},
	{Channel: "email-parse", Address: demoParseBox, Name: "Mailbox of style B"},
	{Channel: "email-json", Address: demoJSONBox, Name: "Mailbox of style C"},
	{Channel: "business-messaging", Address: demoNumberID, Name: "Business messaging"},
	{Channel: "social-messenger", Address: demoPageID, Name: "Social messenger"},
	{Channel: "chat", Address: demoWorkspace, Name: "Team chat"},
	{Channel: "api", Address: demoApp, Name: "App"},
	{Channel: "storefront", Address: demoShop, Name: "Shop"},
	{Channel: "marketplace", Address: demoTopic, Name: "Marketplace"},
	{Channel: "payments-connect", Address: demoAccount, Name: "Connected account"},
}

// demoMessage is an inbound message or event at the start of the demo.
type demoMessage struct {
	channel, event string // of the trigger; empty event: its first
	from, text     string // empty: the trigger's default
	mail           []byte // nil: none
}

// demoMessages returns messages for every channel.
func demoMessages() []demoMessage {
	return []demoMessage{
		{channel: "sms", from: "+14155550171", text: "Hi, scooter B-0417 beeps but does not start. I am at Market Street."},
		{channel: "sms", from: "+14155550172", text: "I was charged twice for my ride this morning."},
		{channel: "sms", from: "+14155550171", text: "Update: it works now, thanks!"},
		{channel: "email-raw", mail: demoLetter(demoMailbox, "ana@client.example", "Ana Client", "Invoice for October",
			"Hello,\n\ncould you send me the invoice for October again?\n\nAna")},
		{channel: "email-raw", mail: demoLetter(demoMailbox, "jo@client.example", "Jo Rider", "Parking zone at the station",
			"Is it allowed to end a ride in front of the station? The app says no.\n\nJo")},
		{channel: "email-form", mail: demoLetter(demoFormBox, "kim@client.example", "Kim Rider", "Helmet box",
			"The helmet box of scooter B-0112 is jammed.\n\nKim")},
		{channel: "email-parse", mail: demoLetter(demoParseBox, "lee@client.example", "Lee Ortiz", "Cargo bikes",
			"Do you rent cargo bikes for a weekend?\n\nLee")},
		{channel: "email-json", mail: demoLetter(demoJSONBox, "max@client.example", "Max Weber", "Two accounts",
			"Please delete my second account.\n\nMax")},
		{channel: "business-messaging", text: "The bike at the river stays locked after I paid."},
		{channel: "social-messenger", text: "Are you open on Sunday?"},
		{channel: "chat", text: "Two scooters in front of our office need new batteries."},
		{channel: "api", event: "file", text: "The app says that my phone is not supported. The log is attached."},
		{channel: "voice", event: "sms", from: "+17025550111", text: "Call me back about the bike with the flat tyre, please."},
		{channel: "storefront"},
		{channel: "marketplace"},
		{channel: "payments-connect"},
	}
}

// demoAppChannel is the demo's channel of the kind api, once it is connected.
type demoAppChannel struct{ id, secret string }

// demoData has the values for the demo's organization.
type demoData struct {
	folder       string
	here         string            // host:port of the server
	secrets      map[string]string // of the channels, except api
	app          *demoAppChannel
	providers    string // URL of the stand-in of the providers
	listenSecret string // of the webhook
	password     string // of the admin
	maps         string // where the background of maps comes from
}

// fillDemo creates the organization with its fleets, members, channels and tickets. The newest
// tickets come by signed requests of the providers.
func fillDemo(ctx context.Context, a *app.App, f demoData) (organization string, c *demoCompany, fleetKeys map[apikey.Environment]string, err error) {
	o, err := a.Accounts.CreateOrganization(ctx, account.NewOrganization{Name: demoOrg, Plan: account.Business})
	if err != nil {
		return "", nil, nil, err
	}
	if fleetKeys, err = fillFleets(ctx, a, o.ID); err != nil {
		return "", nil, nil, err
	}
	c = new(demoCompany)
	if c.Location, err = time.LoadLocation("Europe/Berlin"); err != nil {
		return "", nil, nil, err
	}
	if _, err := a.Accounts.SetTimeZone(ctx, o.ID, c.Location.String()); err != nil {
		return "", nil, nil, err
	}
	if err := c.readFleet(ctx, a.Fleet, o.ID); err != nil {
		return "", nil, nil, err
	}
	if err := c.createMembers(ctx, a, o, f.password); err != nil {
		return "", nil, nil, err
	}
	if err := c.connectDemo(ctx, a, f, o.ID); err != nil {
		return "", nil, nil, err
	}
	if err := c.fillDesk(ctx, a, o); err != nil {
		return "", nil, nil, err
	}
	for _, w := range demoMessages() {
		if err := f.post(ctx, a.BaseURL, w.channel, w.event, &triggerCmd{From: w.from, Text: w.text}, w.mail); err != nil {
			return "", nil, nil, err
		}
	}
	// Last, so that the tickets above have no deliveries to a receiver that does not run
	// yet.
	_, err = a.Webhooks.Create(ctx, o.ID, webhook.New{URL: demoReceiver, Events: []string{"*"}, Secret: &f.listenSecret})
	return o.ID, c, fleetKeys, err
}

// addAlertRules adds rules to each subaccount of production. The timer raises their alerts.
func addAlertRules(ctx context.Context, a *app.App, organizationID string) error {
	return a.Fleet.DB.Write(ctx, func(tx *db.Tx) error {
		subs, err := a.Fleet.Subaccounts(ctx, tx, organizationID)
		if err != nil {
			return err
		}
		for _, s := range subs {
			for _, n := range []fleet.NewAlertRule{
				{Name: "Battery below 12 %", Kind: fleet.BatteryLow, ThresholdPercent: new(int64(12))},
				{Name: "Ride longer than 3 hours", Kind: fleet.RideTooLong, ThresholdMinutes: new(int64(180)), Notify: fleet.NotifyAdmins},
				{Name: "Unused for 5 days", Kind: fleet.IdleTooLong, ThresholdMinutes: new(int64(5 * 24 * 60))},
			} {
				n.SubaccountID = s.ID
				if _, err := a.Fleet.CreateAlertRuleTx(ctx, tx, organizationID, n); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// fillFleets seeds both fleets of the organization, and returns an API key for each.
func fillFleets(ctx context.Context, a *app.App, organizationID string) (map[apikey.Environment]string, error) {
	o := fleet.Organization{ID: organizationID, Name: demoOrg}
	if err := a.Fleet.Seed(ctx, o); err != nil {
		return nil, err
	}
	if err := addAlertRules(ctx, a, o.ID); err != nil {
		return nil, err
	}
	if err := a.Sandbox.Provision(ctx, o); err != nil {
		return nil, err
	}
	keys := map[apikey.Environment]string{}
	for _, environment := range []apikey.Environment{apikey.Live, apikey.Test} {
		_, key, err := a.Keys.Create(ctx, apikey.New{
			OrganizationID: organizationID, Service: apikey.Fleet, Environment: environment, Name: "Demo fleet, " + string(environment),
			Permissions: apikey.Permissions{Level: apikey.Admin},
		})
		if err != nil {
			return nil, err
		}
		keys[environment] = key.Reveal()
	}
	return keys, nil
}

func sendExpectingOK(req *http.Request) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", req.URL.Path, resp.Status)
	}
	return nil
}
