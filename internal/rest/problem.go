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

	"github.com/kickstand-dev/kickstand/internal/apikey"
	"github.com/kickstand-dev/kickstand/internal/audit"
	"github.com/kickstand-dev/kickstand/internal/problem"
)

// errorCode describes an error code.
type errorCode struct {
	status int
	title  string
	doc    string // meaning, and advice for the client
}

// errorCodes holds every code of an answer (fleet-api.md 5).
var errorCodes = map[string]errorCode{
	"invalid_json":            {400, "The request body is not JSON", "The body could not be read: a syntax error, text that is not UTF-8, a member that comes twice, something after the value, or nesting deeper than 64. The detail says where."},
	"invalid_parameter":       {400, "A query parameter is not valid", "A parameter is unknown, comes twice, or has a value that it does not take. The list of errors names each."},
	"invalid_cursor":          {400, "The cursor is not valid", "A cursor belongs to the path, the filters and the sort of the list that gave it. Begin again without one."},
	"invalid_idempotency_key": {400, "The Idempotency-Key is not valid", "It is 1 to 255 visible ASCII characters, plain or as a quoted string."},
	"range_too_large":         {400, "The range is too large", "Ask for a shorter range of time, or for longer periods."},

	"missing_credentials":     {401, "No API key was sent", "Send the header Authorization: Bearer and an API key."},
	"malformed_authorization": {401, "The Authorization header is malformed", "Send exactly one header of the form Authorization: Bearer and an API key."},
	"invalid_api_key":         {401, "The API key is not valid", "The key is not known here, was deleted, or is mistyped. Look at the last 8 characters in the dashboard's list of keys."},
	"wrong_environment":       {401, "The API key belongs to the other environment", "Keys that begin with sk_live_ work at the production address, those with sk_test_ at the sandbox."},
	"api_key_revoked":         {401, "The API key is revoked", "It was revoked in the dashboard and never works again. Make another."},
	"api_key_expired":         {401, "The API key is expired", "Its last day is over. Make another."},

	"permission_denied":        {403, "The API key may not do this", "The member required names what the key would have to be allowed. Permissions are edited in the dashboard."},
	"subaccount_out_of_scope":  {403, "The subaccount is outside of the API key's scope", "A key reaches only the subaccounts it was made for, and a request only the one that it names."},
	"ip_not_allowed":           {403, "The API key does not work from this address", "The key has a list of allowed addresses, and the request came from another."},
	"not_found":                {404, "There is no such record", "It does not exist, was deleted, or belongs to somebody else."},
	"route_not_found":          {404, "There is no such path", "Compare the path with the OpenAPI document."},
	"method_not_allowed":       {405, "The path does not have this method", "The header Allow lists those it has."},
	"not_acceptable":           {406, "No form of the answer is acceptable", "Answers are application/json; lists that can be exported also application/x-ndjson and text/csv, those of shapes application/geo+json."},
	"invalid_transition":       {409, "The record's state does not allow this", "The members from, to and allowed say which change was asked for and which there are."},
	"vehicle_unavailable":      {409, "The vehicle is not available", "It is reserved, on a trip, or out of service."},
	"vehicle_low_battery":      {409, "The vehicle's battery is too low", "Charge it, then report its battery."},
	"vehicle_in_use":           {409, "The vehicle has an open ride", "End or cancel the ride first."},
	"customer_has_open_ride":   {409, "The customer has an open ride", "End or cancel the ride first."},
	"customer_blocked":         {409, "The customer is blocked", "The customer's block_reason may say why."},
	"license_required":         {409, "The customer's driver license is not verified", "The vehicle's type asks for one."},
	"age_required":             {409, "The customer is too young", "The vehicle's type asks for a minimum age."},
	"ride_start_not_allowed":   {409, "A ride cannot start here", "A zone forbids it."},
	"ride_end_not_allowed":     {409, "A ride cannot end here", "A zone forbids it."},
	"out_of_zone_fee_required": {409, "Ending here costs a fee", "Accept it with accept_out_of_zone_fee, or end elsewhere."},
	"ride_not_cancellable":     {409, "The ride can no longer be cancelled", "It has gone on for too long or too far. Complete it."},
	"pricing_changed":          {409, "Another pricing plan would apply", "Read the plan again, and show the customer its price."},
	"no_pricing_plan":          {409, "No pricing plan applies", "The vehicle's type needs a default plan."},
	"crossed_reply":            {409, "Somebody else has replied in the meantime", "The member message says who, when, and which message. Read the ticket again and send the reply with that as seen_message_id, or with force. Nothing was stored; a changed body needs an Idempotency-Key of its own."},
	"already_exists":           {409, "Such a record exists already", "The member that must be unique is named by member."},
	"clock_backwards":          {409, "The sandbox's clock only goes forward", "Reset the sandbox to begin again."},
	"idempotency_in_progress":  {409, "A request with this Idempotency-Key is still running", "Wait for a second, then send the same request again."},
	"precondition_failed":      {412, "The record has changed", "The ETag in If-Match is not the record's. Read it again, and change that."},
	"body_too_large":           {413, "The request body is too large", "JSON may have 1 MiB, an import 16 MiB."},
	"unsupported_media_type":   {415, "The request body's type is not supported", "The header Accept lists the types that are."},
	"validation_failed":        {422, "The request body is not valid", "The list of errors names each member that is wrong, by a JSON pointer, with a code and what would be right."},
	"idempotency_key_reused":   {422, "The Idempotency-Key was used for another request", "Within 24 hours a key stands for one request: method, path, query and body. Use a new key."},
	"rate_limited":             {429, "Too many requests", "Wait for as many seconds as Retry-After says. The member policy says whether it is the key's window or the address's failed authentications."},
	"internal_error":           {500, "Something went wrong on our side", "It is in our log under the request id. A retry with the same Idempotency-Key is safe."},
	"unavailable":              {503, "The service cannot answer now", "Wait for as many seconds as Retry-After says, then send the same request again."},
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

// fieldError is one invalid field or parameter of a request.
type fieldError struct {
	Code      string `json:"code"`
	Detail    string `json:"detail"`
	Pointer   string `json:"pointer,omitempty"`
	Parameter string `json:"parameter,omitempty"`
	Header    string `json:"header,omitempty"`
}

// apiError is an error answer of this API.
type apiError struct {
	code      string
	detail    string
	fieldErrs []fieldError
	details   map[string]any
	headers   [][2]string
	retry     time.Duration
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
	return &apiError{code: "invalid_parameter", detail: detail, fieldErrs: []fieldError{{Code: "invalid_value", Detail: detail, Parameter: name}}}
}

// denied returns the refusal for a missing permission.
func (a *API) denied(p Permission) *apiError {
	return &apiError{
		code: "permission_denied", detail: "The API key is not allowed " + p.String() + ".",
		details: map[string]any{"required": p.String()},
		headers: [][2]string{{"Www-Authenticate", `Bearer realm="` + a.c.Realm + `", error="insufficient_scope", scope="` + p.String() + `"`}},
	}
}

// invalid returns the refusal of a body with field errors.
func invalid(fieldErrs []fieldError) *apiError {
	f := &apiError{code: "validation_failed", fieldErrs: fieldErrs, detail: fieldErrs[0].Detail}
	if len(fieldErrs) > 1 {
		f.detail = fmt.Sprintf("%d members are not valid.", len(fieldErrs))
	}
	return f
}

// toAPIError converts an error of a handler. input, which may be nil, gives the names of the
// body's fields.
func toAPIError(err error, input *Record) *apiError {
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
		for _, i := range e.Issues[:min(len(e.Issues), maxFieldErrors)] {
			pointer, name := pointerOf(i.Path, input)
			detail := sentence(i.Message)
			if name != "" {
				detail = name + " " + stopped(i.Message)
			}
			f.fieldErrs = append(f.fieldErrs, fieldError{Code: cmp.Or(i.Code, "invalid_value"), Detail: detail, Pointer: pointer})
		}
		if len(f.fieldErrs) > 0 {
			f.detail = invalid(f.fieldErrs).detail
		}
	}
	return f
}

// pointerOf converts the path of a service's validation issue to the JSON pointer and name of
// the API's field.
func pointerOf(path string, input *Record) (pointer, name string) {
	if path == "" {
		return "#", ""
	}
	if head, _, _ := strings.Cut(path, "."); input == nil || member(input.Members, head) == nil {
		path = snake(path)
	}
	pointer = "#"
	for part := range strings.SplitSeq(path, ".") {
		pointer = point(pointer, part)
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
	return stopped(s)
}

// stopped returns s with a full stop, unless it ends with punctuation.
func stopped(s string) string {
	if strings.HasSuffix(s, ".") || strings.HasSuffix(s, "?") || strings.HasSuffix(s, "!") {
		return s
	}
	return s + "."
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
		b.Write(quote(name))
		b.WriteByte(':')
		b.Write(text)
	}
	add("type", a.c.Origin+"/problems/"+f.code)
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
	}
	audit.Security(audit.WithSource(r.http.Context(), r.source()), a.log, "request.refused",
		slog.String("code", code), slog.String("method", r.http.Method), slog.String("path", clip(r.http.URL.Path)))
}

// fail answers with a problem.
func (a *API) fail(w http.ResponseWriter, r *Request, f *apiError) {
	status, body := a.document(f, r.ID)
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
