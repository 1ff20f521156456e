package shop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kickstand-dev/kickstand/internal/db"
	"github.com/kickstand-dev/kickstand/internal/netguard"
	"github.com/kickstand-dev/kickstand/internal/queue"
)

// DefaultVersion is the version of the shops' API. Each is supported for about a
// year.
const DefaultVersion = "2026-10"

// firstWithURI is the first version with a subscription's address in its field uri.
const firstWithURI = "2025-10"

// The credential for calls, and the connection setting for another API version.
const (
	AccessToken    = "access_token"
	versionSetting = "api_version"
)

// storefront is the channel with subscriptions, hookPath their endpoint.
const (
	storefront = "storefront"
	hookPath   = "/api/webhooks/storefront"
)

// topics are the subscribed topics, in the API's terms.
var topics = [...]string{"ORDERS_CREATE", "ORDERS_UPDATED", "CUSTOMERS_CREATE", "CUSTOMERS_UPDATE", "APP_UNINSTALLED"}

const (
	subscriptionKind = "shop-subscriptions" // lanes are connections
	sealPurpose      = "shop-subscriptions"
	recheck          = 24 * time.Hour
	callTimeout      = 20 * time.Second
	maxAnswer        = 1 << 20 // bytes
	maxPages         = 20
)

// unsubscribeJob is the payload of a job that ends the subscriptions of a deleted
// connection.
type unsubscribeJob struct {
	Connection Connection `json:"connection"`
}

// ConnectionChangedTx enqueues a check of the subscriptions of a created or changed
// connection, or their end if it is gone, in the transaction of the change.
func (s *Service) ConnectionChangedTx(ctx context.Context, tx *db.Tx, c Connection, gone bool) error {
	if c.Channel != storefront {
		return nil
	}
	if err := tx.Queue(ctx, `INSERT INTO shop_places (place, organization_id, address, proven) VALUES ($1, $2, $3, $4)
		ON CONFLICT (place) DO UPDATE SET address = excluded.address, proven = shop_places.proven OR excluded.proven`,
		c.ID, c.OrganizationID, c.Address, c.Proven); err != nil {
		return fmt.Errorf("note the shop of a connection: %w", err)
	}
	var old string
	err := tx.QueryRow(ctx, "SELECT job_id FROM shop_subscriptions WHERE connection_id = $1 FOR UPDATE", c.ID).Scan(&old)
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return fmt.Errorf("find subscriptions job: %w", err)
	}
	if old != "" {
		if err := s.queue.DeleteTx(ctx, tx, old); err != nil {
			return err
		}
	}
	job := queue.New{ID: queue.NewID(), Kind: subscriptionKind, Lane: c.ID}
	if gone {
		if err := tx.Queue(ctx, "DELETE FROM shop_subscriptions WHERE connection_id = $1", c.ID); err != nil {
			return fmt.Errorf("delete subscriptions: %w", err)
		}
		if c.Credentials[AccessToken] == "" {
			return nil
		}
		plain, err := json.Marshal(unsubscribeJob{c})
		if err != nil {
			return err
		}
		job.Payload = s.box.Seal(sealPurpose, plain, job.ID)
		return s.queue.EnqueueTx(ctx, tx, job)
	}
	if err := tx.Queue(ctx, `INSERT INTO shop_subscriptions (connection_id, job_id) VALUES ($1, $2)
		ON CONFLICT (connection_id) DO UPDATE SET job_id = excluded.job_id`, c.ID, job.ID); err != nil {
		return fmt.Errorf("record subscriptions job: %w", err)
	}
	return s.queue.EnqueueTx(ctx, tx, job)
}

// Subscriptions is the state of a connection's subscriptions.
type Subscriptions struct {
	CheckedAt time.Time `json:"checked_at,omitzero"` // zero: not yet
	Problem   string    `json:"problem,omitempty"`   // in plain words; empty: none
}

// Subscriptions returns the state of a connection's subscriptions.
func (s *Service) Subscriptions(ctx context.Context, q db.Querier, connectionID string) (Subscriptions, error) {
	var sub Subscriptions
	err := q.QueryRow(ctx, "SELECT checked_at, problem FROM shop_subscriptions WHERE connection_id = $1", connectionID).
		Scan(db.IntoTime(&sub.CheckedAt), db.IntoText(&sub.Problem))
	if errors.Is(err, db.ErrNoRows) {
		err = nil
	}
	return sub, err
}

// runSubscriptions reconciles the subscriptions of a connection, and repeats daily.
func (s *Service) runSubscriptions(ctx context.Context, j *queue.Job) error {
	if len(j.Payload) > 0 {
		return s.unsubscribe(ctx, j)
	}
	c, err := s.connections.Connection(ctx, j.Lane)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load connection: %w", err)
	}
	if c.Credentials[AccessToken] == "" {
		// Without a token, subscriptions are managed in the shop.
		return s.db.Write(ctx, func(tx *db.Tx) error {
			if err := s.recordCheck(ctx, tx, j, &c, ""); err != nil {
				return err
			}
			return j.FinishTx(ctx, tx)
		})
	}
	problems, err := s.reconcile(ctx, &c)
	if busy, ok := errors.AsType[*busyError](err); ok {
		return s.db.Write(ctx, func(tx *db.Tx) error { return j.RescheduleTx(ctx, tx, tx.Now.Add(busy.wait)) })
	}
	refused, isRefused := errors.AsType[*refusedError](err)
	if err != nil && !isRefused {
		if ctx.Err() != nil {
			return err
		}
		problems = []string{"The shop's API cannot be reached: " + err.Error()}
		noted := s.db.Write(ctx, func(tx *db.Tx) error { return s.recordCheck(ctx, tx, j, &c, problems[0]) })
		return errors.Join(err, noted)
	}
	if isRefused {
		problems = []string{refused.Error()}
	}
	return s.db.Write(ctx, func(tx *db.Tx) error {
		if err := s.recordCheck(ctx, tx, j, &c, strings.Join(problems, "\n")); err != nil {
			return err
		}
		if !c.Enabled {
			return j.FinishTx(ctx, tx)
		}
		return j.RescheduleTx(ctx, tx, tx.Now.Add(recheck))
	})
}

// recordCheck stores the result of a check, if the job is still the connection's
// current one.
func (s *Service) recordCheck(ctx context.Context, tx *db.Tx, j *queue.Job, c *Connection, problem string) error {
	n, err := tx.Exec(ctx, "UPDATE shop_subscriptions SET checked_at = $3, problem = $4 WHERE connection_id = $1 AND job_id = $2",
		c.ID, j.ID, tx.Now.UnixMicro(), db.Text(clean(problem)))
	if err != nil {
		return fmt.Errorf("record subscriptions check: %w", err)
	}
	if n == 0 || !c.Enabled {
		return nil // the notice of a disabled connection is the reason for that
	}
	return s.connections.NoticeTx(ctx, tx, c, problem)
}

// unsubscribe ends the subscriptions of a deleted connection.
func (s *Service) unsubscribe(ctx context.Context, j *queue.Job) error {
	plain, err := s.box.Open(sealPurpose, j.Payload, j.ID)
	if err != nil {
		return fmt.Errorf("open job payload: %w", err)
	}
	var f unsubscribeJob
	if err := json.Unmarshal(plain, &f); err != nil {
		return fmt.Errorf("open job payload: %w", err)
	}
	f.Connection.Enabled = false
	_, err = s.reconcile(ctx, &f.Connection)
	if busy, ok := errors.AsType[*busyError](err); ok {
		return s.db.Write(ctx, func(tx *db.Tx) error { return j.RescheduleTx(ctx, tx, tx.Now.Add(busy.wait)) })
	}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		s.log.InfoContext(ctx, "a shop refuses to end subscriptions; it ends them itself", "shop", f.Connection.Address, "reason", refused.Error())
		return nil
	}
	if err != nil && s.db.Now().Sub(j.CreatedAt) > 7*24*time.Hour {
		return nil // the shop is gone
	}
	return err
}

// subscription is a subscription in the shop's form.
type subscription struct {
	ID       string `json:"id"`
	Topic    string `json:"topic"`
	URI      string `json:"uri"`
	Endpoint struct {
		CallbackURL string `json:"callbackUrl"`
	} `json:"endpoint"`
}

func (s *subscription) address() string {
	if s.URI != "" {
		return s.URI
	}
	return s.Endpoint.CallbackURL
}

// reconcile creates, updates and deletes a connection's subscriptions until there
// is one for each topic, or none if it is disabled. It is idempotent. problems are
// permanent failures that need a person.
func (s *Service) reconcile(ctx context.Context, c *Connection) (problems []string, err error) {
	a, err := s.newAPI(c)
	if err != nil {
		return []string{"The connection cannot be used: " + err.Error() + "."}, nil
	}
	have, err := a.list(ctx)
	if err != nil {
		return nil, err
	}
	want := s.baseURL + hookPath + "?c=" + url.QueryEscape(c.ID)
	for _, topic := range topics {
		var ours []subscription
		for _, sub := range have {
			if sub.Topic == topic && s.isOurs(sub.address()) {
				ours = append(ours, sub)
			}
		}
		// The correct one first, if there is one.
		slices.SortStableFunc(ours, func(x, y subscription) int {
			return strings.Compare(strconv.FormatBool(y.address() == want), strconv.FormatBool(x.address() == want))
		})
		stale := ours
		if c.Enabled {
			var err error
			switch {
			case len(ours) == 0:
				err = a.create(ctx, topic, want)
			case ours[0].address() != want:
				err = a.update(ctx, ours[0].ID, want)
			}
			if denied, ok := errors.AsType[*deniedError](err); ok {
				problems = append(problems, denied.Error())
				continue
			}
			if err != nil {
				return problems, err
			}
			stale = ours[min(1, len(ours)):]
		}
		for _, sub := range stale {
			if err := a.delete(ctx, sub.ID); err != nil {
				if denied, ok := errors.AsType[*deniedError](err); ok {
					problems = append(problems, denied.Error())
					continue
				}
				return problems, err
			}
		}
	}
	return problems, nil
}

// isOurs reports whether a subscription posts to this deployment.
func (s *Service) isOurs(address string) bool {
	rest, ok := strings.CutPrefix(address, s.baseURL+hookPath)
	return ok && (rest == "" || rest[0] == '?')
}

// busyError reports that the API's rate limit is exceeded.
type busyError struct{ wait time.Duration }

func (e *busyError) Error() string {
	return "the shop's API asks for a pause of " + e.wait.String()
}

// refusedError reports that the API rejects the credentials.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return e.why }

// deniedError reports that the API refuses one action.
type deniedError struct{ action, why string }

func (e *deniedError) Error() string {
	return "The shop refuses to let us " + e.action + ": " + e.why
}

// api calls one shop's API.
type api struct {
	http    http.RoundTripper
	url     string
	token   string
	withURI bool
}

func (s *Service) newAPI(c *Connection) (*api, error) {
	version := s.version
	if v := c.Settings[versionSetting]; v != "" {
		version = v
	}
	if version != url.PathEscape(version) || version == "." || version == ".." {
		return nil, fmt.Errorf("its setting %s is not a version such as %s", versionSetting, DefaultVersion)
	}
	base, err := netguard.ParseAPIURL(strings.ReplaceAll(s.apiURL, "{shop}", c.Address), "")
	if err != nil {
		return nil, fmt.Errorf("the address of the shop's API: %w", err)
	}
	return &api{
		http: s.http, url: strings.TrimRight(base.String(), "/") + "/admin/api/" + version + "/graphql.json", token: c.Credentials[AccessToken],
		withURI: version >= firstWithURI || version == "unstable",
	}, nil
}

// list returns the app's subscriptions to our topics.
func (a *api) list(ctx context.Context) ([]subscription, error) {
	address := "endpoint { ... on WebhookHttpEndpoint { callbackUrl } }"
	if a.withURI {
		address = "uri"
	}
	query := `query($topics: [WebhookSubscriptionTopic!], $after: String) {
  webhookSubscriptions(first: 50, topics: $topics, after: $after) {
    nodes { id topic ` + address + ` }
    pageInfo { hasNextPage endCursor }
  }
}`
	var all []subscription
	var after any
	for range maxPages {
		var data struct {
			WebhookSubscriptions struct {
				Nodes    []subscription `json:"nodes"`
				PageInfo struct {
					HasNextPage bool   `json:"hasNextPage"`
					EndCursor   string `json:"endCursor"`
				} `json:"pageInfo"`
			} `json:"webhookSubscriptions"`
		}
		if err := a.call(ctx, "list our subscriptions", query, map[string]any{"topics": topics, "after": after}, &data); err != nil {
			if denied, ok := errors.AsType[*deniedError](err); ok {
				return nil, &refusedError{denied.Error()} // no other call will succeed
			}
			return nil, err
		}
		all = append(all, data.WebhookSubscriptions.Nodes...)
		if !data.WebhookSubscriptions.PageInfo.HasNextPage {
			return all, nil
		}
		after = data.WebhookSubscriptions.PageInfo.EndCursor
	}
	return nil, errors.New("the list of subscriptions does not end")
}

// input returns the input fields of a subscription, by version.
func (a *api) input(address string) map[string]any {
	if a.withURI {
		return map[string]any{"uri": address, "format": "JSON"}
	}
	return map[string]any{"callbackUrl": address, "format": "JSON"}
}

// userError is a refusal of a mutation.
type userError struct {
	Field   []string `json:"field"`
	Message string   `json:"message"`
}

// mutationResult is the response of any mutation.
type mutationResult map[string]struct {
	UserErrors []userError `json:"userErrors"`
}

func (c mutationResult) err(action string) error {
	var why []string
	for _, m := range c {
		for _, e := range m.UserErrors {
			if strings.Contains(strings.ToLower(e.Message), "already been taken") || strings.Contains(strings.ToLower(e.Message), "already taken") {
				continue // it exists, which is the goal
			}
			why = append(why, clip(e.Message))
		}
	}
	if len(why) == 0 {
		return nil
	}
	return &deniedError{action, strings.Join(why, "; ")}
}

func topicName(topic string) string {
	return strings.ToLower(strings.Replace(topic, "_", "/", 1))
}

func (a *api) create(ctx context.Context, topic, address string) error {
	const mutation = `mutation($topic: WebhookSubscriptionTopic!, $sub: WebhookSubscriptionInput!) {
  webhookSubscriptionCreate(topic: $topic, webhookSubscription: $sub) { webhookSubscription { id } userErrors { field message } }
}`
	action := "subscribe to " + topicName(topic)
	var data mutationResult
	if err := a.call(ctx, action, mutation, map[string]any{"topic": topic, "sub": a.input(address)}, &data); err != nil {
		return err
	}
	return data.err(action)
}

func (a *api) update(ctx context.Context, id, address string) error {
	const mutation = `mutation($id: ID!, $sub: WebhookSubscriptionInput!) {
  webhookSubscriptionUpdate(id: $id, webhookSubscription: $sub) { webhookSubscription { id } userErrors { field message } }
}`
	const action = "change a subscription"
	var data mutationResult
	if err := a.call(ctx, action, mutation, map[string]any{"id": id, "sub": a.input(address)}, &data); err != nil {
		return err
	}
	return data.err(action)
}

func (a *api) delete(ctx context.Context, id string) error {
	const mutation = `mutation($id: ID!) {
  webhookSubscriptionDelete(id: $id) { deletedWebhookSubscriptionId userErrors { field message } }
}`
	const action = "end a subscription"
	var data mutationResult
	if err := a.call(ctx, action, mutation, map[string]any{"id": id}, &data); err != nil {
		return err
	}
	for _, m := range data {
		for _, e := range m.UserErrors {
			if strings.Contains(strings.ToLower(e.Message), "not exist") || strings.Contains(strings.ToLower(e.Message), "not found") {
				return nil // deleted meanwhile
			}
		}
	}
	return data.err(action)
}

// call performs one call and decodes its data. Errors never contain the token.
func (a *api) call(ctx context.Context, action, query string, variables map[string]any, data any) error {
	body, err := json.Marshal(map[string]any{"query": query, "variables": variables})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("its address is malformed")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "Kickstand")
	req.Header.Set("X-Shopify-Access-Token", a.token)
	// Not an http.Client: it would follow redirects, with the token.
	resp, err := a.http.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("the answer broke off: %w", err)
	}
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		seconds, _ := strconv.ParseFloat(resp.Header.Get("Retry-After"), 64)
		return &busyError{retryAfter(seconds)}
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden, resp.StatusCode == http.StatusPaymentRequired,
		resp.StatusCode == http.StatusNotFound, resp.StatusCode == http.StatusLocked:
		return &refusedError{fmt.Sprintf("The shop refuses our access token, or is closed (status %d). Install the app anew and give the connection the new token.", resp.StatusCode)}
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("it answered with status %d", resp.StatusCode)
	}
	var answer struct {
		Data   json.RawMessage `json:"data"`
		Errors []struct {
			Message    string `json:"message"`
			Extensions struct {
				Code string `json:"code"`
			} `json:"extensions"`
		} `json:"errors"`
		Extensions struct {
			Cost struct {
				Requested float64 `json:"requestedQueryCost"`
				Throttle  struct {
					Available float64 `json:"currentlyAvailable"`
					Restore   float64 `json:"restoreRate"`
				} `json:"throttleStatus"`
			} `json:"cost"`
		} `json:"extensions"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return errors.New("its response cannot be decoded")
	}
	for _, e := range answer.Errors {
		switch {
		case e.Extensions.Code == "THROTTLED":
			cost := answer.Extensions.Cost
			return &busyError{retryAfter((cost.Requested - cost.Throttle.Available) / max(cost.Throttle.Restore, 1))}
		case e.Extensions.Code == "ACCESS_DENIED" || strings.Contains(strings.ToLower(e.Message), "access denied"):
			return &deniedError{action, clip(e.Message) + " The app needs the scopes read_orders and read_customers, and the platform's approval of protected customer data."}
		}
	}
	if len(answer.Errors) > 0 {
		return &deniedError{action, clip(answer.Errors[0].Message)}
	}
	if err := json.Unmarshal(answer.Data, data); err != nil {
		return errors.New("its response cannot be decoded")
	}
	return nil
}

// retryAfter returns the wait for a number of seconds, from a second to an hour.
func retryAfter(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, 1), 3600) * float64(time.Second))
}

// clip shortens a foreign text to one line.
func clip(text string) string {
	text = strings.Join(strings.Fields(clean(text)), " ")
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…"
	}
	if text != "" && !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}
