package rest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/problem"
	"github.com/kickstand-dev/kickstand/internal/requestlog"
	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

// errorCode describes an error code.
type errorCode struct {
	status int
	title  string
	doc    string // meaning, and advice for the client
}

// errorCodes holds every code of an answer (fleet-api.md 5).
var errorCodes = map[string]errorCode{
	"invalid_form":            {400, "The request body is not a form", "The multipart/form-data could not be parsed: it has no boundary, breaks off or arrives too slowly."},
	"invalid_json":            {400, "The request body is not JSON", "The body could not be parsed: a syntax error, invalid UTF-8, a duplicate field, text after the value, or nesting deeper than 64. The detail gives the position."},
	"invalid_parameter":       {400, "A query parameter is not valid", "A parameter is unknown, duplicate, or has an invalid value. errors lists each."},
	"invalid_cursor":          {400, "The cursor is not valid", "A cursor is valid only for the path, filters and sort order of the list that returned it. Start again without one."},
	"invalid_idempotency_key": {400, "The Idempotency-Key is not valid", "It is 1 to 255 visible ASCII characters, plain or as a quoted string."},
	"range_too_large":         {400, "The range is too large", "Request a shorter time range or longer periods."},

	"missing_credentials":     {401, "No API key was sent", "Send the header Authorization: Bearer and an API key."},
	"malformed_authorization": {401, "The Authorization header is malformed", "Send exactly one header of the form Authorization: Bearer and an API key."},
	"invalid_api_key":         {401, "The API key is not valid", "The key is unknown, deleted or mistyped. Compare its last 8 characters with the list of keys in the dashboard."},
	"invalid_visitor_token":   {401, "The visitor token is not valid", "It is missing, malformed, expired, signed with another secret, or of another channel. The app's server signs a new one; docs/channels/api.md describes the form."},
	"wrong_environment":       {401, "The API key belongs to the other environment", "Keys that start with sk_live_ work at the production URL, keys with sk_test_ at the sandbox URL."},
	"api_key_revoked":         {401, "The API key is revoked", "It was revoked and never works again. Create a new key."},
	"api_key_expired":         {401, "The API key is expired", "It has expired. Create a new key."},

	"permission_denied":        {403, "The API key may not do this", "The field required names the missing permission. Permissions are edited in the dashboard."},
	"subaccount_out_of_scope":  {403, "The subaccount is outside of the API key's scope", "A key covers only the subaccounts in its scope, and a request only the one that it names."},
	"quota_exceeded":           {403, "A quota is used up", "The field quota names it: storage or webhooks, with its limit and use. Delete what is not needed, or ask for a higher limit. A retry is refused as well."},
	"ip_not_allowed":           {403, "The API key does not work from this address", "The key has a list of allowed addresses, and the request came from another."},
	"origin_not_allowed":       {403, "Pages of this origin may not use the channel", "Add the origin to the channel's setting origins."},
	"not_found":                {404, "There is no such record", "It does not exist, was deleted, or belongs to another organization."},
	"route_not_found":          {404, "There is no such path", "Compare the path with the OpenAPI document."},
	"method_not_allowed":       {405, "The path does not have this method", "The header Allow lists the supported methods."},
	"not_acceptable":           {406, "No form of the answer is acceptable", "Answers are application/json; exportable lists also application/x-ndjson and text/csv, rides and analytics application/vnd.apache.parquet, zones and other geometries application/geo+json."},
	"invalid_transition":       {409, "The record's state does not allow this", "The fields from, to and allowed give the requested change and the allowed ones."},
	"vehicle_unavailable":      {409, "The vehicle is not available", "It is reserved, on a trip, or out of service."},
	"vehicle_low_battery":      {409, "The vehicle's battery is too low", "Charge it, then report its battery."},
	"vehicle_in_use":           {409, "The vehicle has an open ride", "End or cancel the ride first."},
	"customer_has_open_ride":   {409, "The customer has an open ride", "End or cancel the ride first."},
	"customer_blocked":         {409, "The customer is blocked", "The customer's block_reason may say why."},
	"license_required":         {409, "The customer's driver license is not verified", "The vehicle type requires a verified license."},
	"age_required":             {409, "The customer is too young", "The vehicle type has a minimum age."},
	"ride_start_not_allowed":   {409, "A ride cannot start here", "A zone forbids it."},
	"ride_end_not_allowed":     {409, "A ride cannot end here", "A zone forbids it."},
	"out_of_zone_fee_required": {409, "Ending here costs a fee", "Accept it with accept_out_of_zone_fee, or end elsewhere."},
	"ride_not_cancellable":     {409, "The ride can no longer be cancelled", "It has lasted too long or gone too far. Complete it."},
	"pricing_changed":          {409, "Another pricing plan would apply", "Read the plan again, and show the customer its price."},
	"no_pricing_plan":          {409, "No pricing plan applies", "The vehicle's type needs a default plan."},
	"crossed_reply":            {409, "Somebody else has replied in the meantime", "The field message has the id, author and time of the newer reply. Read the ticket again and send the reply with that id as seen_message_id, or with force. Nothing was stored; a changed body needs a new Idempotency-Key."},
	"already_exists":           {409, "Such a record exists already", "The field member names the field that must be unique."},
	"clock_backwards":          {409, "The sandbox's clock only goes forward", "Reset the sandbox to begin again."},
	"idempotency_in_progress":  {409, "A request with this Idempotency-Key is still running", "Wait for a second, then send the same request again."},
	"precondition_failed":      {412, "The record has changed", "The ETag in If-Match is not the current one. Read the record again and repeat the change."},
	"body_too_large":           {413, "The request body is too large", "The limit is 1 MiB for JSON and 16 MiB for an import."},
	"unsupported_media_type":   {415, "The request body's type is not supported", "The header Accept lists the supported types."},
	"validation_failed":        {422, "The request body is not valid", "errors lists each invalid field by a JSON pointer, with a code and the expected value."},
	"idempotency_key_reused":   {422, "The Idempotency-Key was used for another request", "Within 24 hours a key identifies one request: method, path, query and body. Use a new key."},
	"rate_limited":             {429, "Too many requests", "Wait for the seconds in Retry-After. The field policy tells whether the limit is the key's or that of failed authentications of the address."},
	"daily_quota_exceeded":     {429, "The messages of today are used up", "The organization has received and sent all messages that it may have a day. Retry-After has the seconds until the next day (UTC) begins. Messages from customers are received all the same."},
	"internal_error":           {500, "Something went wrong on our side", "It is logged under the request id. A retry with the same Idempotency-Key is safe."},
	"unavailable":              {503, "The service cannot answer now", "Wait for the seconds in Retry-After, then send the same request again."},
}

// ErrorCode describes a value of the field code of a problem.
type ErrorCode struct {
	Code   string
	Status int
	Title  string
	Doc    string // meaning, and advice for the client
}

// ErrorCodes returns all codes, sorted. Some belong to one of the two services only.
func ErrorCodes() []ErrorCode {
	var out []ErrorCode
	for _, name := range slices.Sorted(maps.Keys(errorCodes)) {
		c := errorCodes[name]
		out = append(out, ErrorCode{name, c.status, c.title, c.doc})
	}
	return out
}

// byKind is the default code of an error by kind.
var byKind = map[problem.Kind]string{
	problem.Internal:         "internal_error",
	problem.Invalid:          "validation_failed",
	problem.Unparseable:      "invalid_parameter",
	problem.Unauthorized:     "invalid_api_key",
	problem.Forbidden:        "permission_denied",
	problem.NotFound:         "not_found",
	problem.MethodNotAllowed: "method_not_allowed",
	problem.Conflict:         "already_exists",
	problem.Precondition:     "invalid_transition",
	problem.TooLarge:         "body_too_large",
	problem.UnsupportedMedia: "unsupported_media_type",
	problem.RateLimited:      "rate_limited",
	problem.Unavailable:      "unavailable",
}

// byRefusal is the code of a refused key.
var byRefusal = map[apikey.Refusal]string{
	apikey.Missing:          "missing_credentials",
	apikey.Malformed:        "invalid_api_key",
	apikey.WrongEnvironment: "wrong_environment",
	apikey.Unknown:          "invalid_api_key",
	apikey.KeyIsRevoked:     "api_key_revoked",
	apikey.KeyIsExpired:     "api_key_expired",
	apikey.IPNotAllowed:     "ip_not_allowed",
}

// apiError is an error answer of this API.
type apiError struct {
	code      string
	detail    string
	fieldErrs []schema.FieldError
	details   map[string]any
	headers   [][2]string
	retry     time.Duration
	refusal   requestlog.Refusal // by a rule of the key
	cause     error
}

func (f *apiError) Error() string {
	if f.cause != nil {
		return f.code + ": " + f.detail + ": " + f.cause.Error()
	}
	return f.code + ": " + f.detail
}

func (f *apiError) Unwrap() error { return f.cause }

func apiErrorf(code, format string, args ...any) *apiError {
	return &apiError{code: code, detail: fmt.Sprintf(format, args...)}
}

// BadParameter returns a 400 invalid_parameter, for query parameters that only the handler can
// check.
func BadParameter(name, format string, args ...any) error {
	detail := fmt.Sprintf(format, args...)
	return &apiError{code: "invalid_parameter", detail: detail, fieldErrs: []schema.FieldError{{Code: "invalid_value", Detail: detail, Parameter: name}}}
}

// denied returns the refusal for a missing permission.
func (a *API) denied(p Permission) *apiError {
	return &apiError{
		refusal: requestlog.Refusal{Rule: requestlog.Resource, Needed: p.String()},

		code: "permission_denied", detail: "The API key is not allowed " + p.String() + ".",
		details: map[string]any{"required": p.String()},
		headers: [][2]string{{"Www-Authenticate", `Bearer realm="` + a.c.Realm + `", error="insufficient_scope", scope="` + p.String() + `"`}},
	}
}

// invalid returns the refusal of a body with field errors.
func invalid(fieldErrs []schema.FieldError) *apiError {
	f := &apiError{code: "validation_failed", fieldErrs: fieldErrs, detail: fieldErrs[0].Detail}
	if len(fieldErrs) > 1 {
		f.detail = fmt.Sprintf("%d fields are not valid.", len(fieldErrs))
	}
	return f
}

// toAPIError converts an error of a handler. input, which may be nil, gives the names of the
// body's fields.
func toAPIError(err error, input *schema.Record) *apiError {
	if f, ok := errors.AsType[*apiError](err); ok {
		return f
	}
	e, ok := errors.AsType[*problem.Error](err)
	if !ok {
		return &apiError{code: "internal_error", detail: "The request could not be answered.", cause: err}
	}
	f := &apiError{code: e.Code, detail: sentence(e.Message), details: e.Details, retry: e.RetryAfter, cause: err}
	if _, known := errorCodes[f.code]; !known {
		f.code = byKind[e.Kind]
	}
	if f.code == "internal_error" {
		f.detail, f.details = "The request could not be answered.", nil
	}
	if f.code == "validation_failed" {
		for _, i := range e.Issues[:min(len(e.Issues), schema.MaxFieldErrors)] {
			pointer, name := pointerOf(i.Path, input)
			detail := sentence(i.Message)
			if name != "" {
				detail = name + " " + schema.EndSentence(i.Message)
			}
			f.fieldErrs = append(f.fieldErrs, schema.FieldError{Code: cmp.Or(i.Code, "invalid_value"), Detail: detail, Pointer: pointer})
		}
		if len(f.fieldErrs) > 0 {
			f.detail = invalid(f.fieldErrs).detail
		}
	}
	return f
}

// pointerOf converts the path of a service's validation issue to the JSON pointer and name of
// the API's field.
func pointerOf(path string, input *schema.Record) (pointer, name string) {
	if path == "" {
		return "#", ""
	}
	if head, _, _ := strings.Cut(path, "."); !input.Has(head) {
		path = snake(path)
	}
	pointer = "#"
	for part := range strings.SplitSeq(path, ".") {
		pointer = schema.Pointer(pointer, part)
	}
	return pointer, path
}

// snake returns "customer_id" for "customerId".
func snake(s string) string {
	var b strings.Builder
	for _, r := range s {
		if 'A' <= r && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// sentence turns a service's message into a sentence.
func sentence(s string) string {
	if s == "" {
		return s
	}
	// Field names stay lower case.
	if first, _, _ := strings.Cut(s, " "); 'a' <= s[0] && s[0] <= 'z' && !strings.ContainsAny(first, "_.[") {
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	return schema.EndSentence(s)
}

// storable reports whether an answer with this status is stored for retries (fleet-api.md 4).
func storable(status int) bool {
	switch status {
	case 400, 401, 403, 404, 406, 413, 415, 422, 429:
		return false
	}
	return status < 500
}

// document returns the body of a problem.
func (a *API) document(f *apiError, requestID string) (status int, body []byte) {
	return problemDocument(a.c.Origin, f, requestID)
}

// WriteProblem answers with an error in the form of the REST APIs, for a surface that has no API
// keys. Its origin is the base of the pages about problems. It returns the status.
func WriteProblem(w http.ResponseWriter, origin string, err error) int {
	f := toAPIError(err, nil)
	status, body := problemDocument(origin, f, uuid.NewString())
	h := w.Header()
	if f.code == "unavailable" || f.retry > 0 {
		h.Set("Retry-After", fmt.Sprint(seconds(cmp.Or(f.retry, 5*time.Second))))
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	w.Write(body)
	return status
}

func problemDocument(origin string, f *apiError, requestID string) (status int, body []byte) {
	c := errorCodes[f.code]
	var b strings.Builder
	add := func(name string, v any) {
		text, err := json.Marshal(v)
		if err != nil {
			return // details cannot be marshalled; send the rest
		}
		if b.Len() == 0 {
			b.WriteByte('{')
		} else {
			b.WriteByte(',')
		}
		b.Write(schema.Quote(name))
		b.WriteByte(':')
		b.Write(text)
	}
	add("type", origin+"/problems/"+f.code)
	add("title", c.title)
	add("status", c.status)
	add("detail", f.detail)
	add("instance", "urn:request:"+requestID)
	add("code", f.code)
	add("request_id", requestID)
	for _, name := range slices.Sorted(maps.Keys(f.details)) {
		add(name, f.details[name])
	}
	if len(f.fieldErrs) > 0 {
		add("errors", f.fieldErrs)
	}
	b.WriteByte('}')
	return c.status, []byte(b.String())
}

// logRefusal logs a refused key or permission.
func (a *API) logRefusal(r *Request, code string) {
	switch code {
	case "api_key_revoked", "api_key_expired", "ip_not_allowed":
		return // logged by package apikey, with the key
	case "quota_exceeded":
		return // no refusal of the key
	}
	audit.LogSecurityEvent(audit.WithSource(r.http.Context(), r.source()), a.log, "request.refused",
		slog.String("code", code), slog.String("method", r.http.Method), slog.String("path", schema.Clip(r.http.URL.Path)))
}

// fail answers with a problem.
func (a *API) fail(w http.ResponseWriter, r *Request, f *apiError) {
	status, body := a.document(f, r.ID)
	r.code, r.refusal = f.code, f.refusal
	h := w.Header()
	for _, kv := range f.headers {
		h.Set(kv[0], kv[1])
	}
	if f.code == "unavailable" || f.retry > 0 {
		h.Set("Retry-After", fmt.Sprint(seconds(cmp.Or(f.retry, 5*time.Second))))
	}
	if f.code == "unsupported_media_type" && h.Get("Accept") == "" {
		h.Set("Accept", strings.Join(r.route.bodyTypes(), ", "))
	}
	h.Set("Content-Type", "application/problem+json")
	h["Content-Disposition"] = attached
	if status == http.StatusForbidden || status == http.StatusUnauthorized && len(r.http.Header["Authorization"]) > 0 {
		a.logRefusal(r, f.code)
	}
	a.send(w, r, status, body)
}
