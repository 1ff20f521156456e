package fleet

import (
	"errors"
	netmail "net/mail"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kickstand-dev/kickstand/internal/period"
	"github.com/kickstand-dev/kickstand/internal/phone"
	"github.com/kickstand-dev/kickstand/internal/problem"

	"golang.org/x/text/language"
)

// Bounds of the common fields (fleet-api.md 0 and 1), in characters; maxKeys is a
// count.
const (
	maxExternal = 128
	maxKeys     = 50
	maxMetaKey  = 40
	maxValue    = 500
)

// Bounds of other fields; of texts in characters.
const (
	maxName   = 256
	maxText   = 5000
	maxURL    = 2048
	maxEmail  = 254 // bytes, by SMTP
	maxTag    = 35  // of a language tag without extensions
	maxList   = 100 // elements of a list in a record
	maxSpeed  = 1000
	maxMeters = 10_000_000
)

// checkCommon adds issues of the common fields. metadata is the merged result.
func checkCommon(v *problem.Validation, externalID NullString, metadata map[string]string) {
	v.Line("external_id", string(externalID), 0, maxExternal)
	if len(metadata) > maxKeys {
		v.AddCode("too_long", "metadata", "must have at most %d keys", maxKeys)
	}
	for key, value := range metadata {
		v.Text("metadata", key)
		switch n := utf8.RuneCountInString(key); {
		case n == 0:
			v.AddCode("too_short", "metadata", "must not have an empty key")
		case n > maxMetaKey:
			v.AddCode("too_long", "metadata", "must not have a key of more than %d characters", maxMetaKey)
		default:
			v.Length("metadata."+key, value, 0, maxValue)
		}
	}
}

// metadataOf returns m, or an empty map for nil.
func metadataOf(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}

// checkLine adds an issue unless value is a non-empty line of up to high
// characters.
func checkLine(v *problem.Validation, path, value string, high int) {
	if value == "" {
		v.AddCode("required", path, "is required")
		return
	}
	v.Line(path, value, 1, high)
}

// checkRange adds an issue unless low <= value <= high.
func checkRange(v *problem.Validation, path string, value, low, high int64) {
	switch {
	case value < low:
		v.AddCode("too_small", path, "must be at least %d", low)
	case value > high:
		v.AddCode("too_large", path, "must be at most %d", high)
	}
}

// checkOptional is checkRange for a value that may be nil.
func checkOptional(v *problem.Validation, path string, value *int64, low, high int64) {
	if value != nil {
		checkRange(v, path, *value, low, high)
	}
}

// checkOneOf adds an issue unless value is in list.
func checkOneOf[T ~string](v *problem.Validation, path string, value T, list ...T) {
	switch {
	case slices.Contains(list, value):
	case value == "":
		v.AddCode("required", path, "is required")
	default:
		words := make([]string, len(list))
		for i, one := range list {
			words[i] = string(one)
		}
		v.AddCode("invalid_value", path, "must be one of %s", strings.Join(words, ", "))
	}
}

// checkURL adds an issue unless link is empty or an absolute web URL.
func checkURL(v *problem.Validation, path string, link NullString) {
	if link == "" {
		return
	}
	v.Line(path, string(link), 1, maxURL)
	u, err := url.Parse(string(link))
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || strings.ContainsAny(string(link), " \t") {
		v.AddCode("invalid_format", path, "must be an http or https URL")
	}
}

// checkEmail adds an issue unless address is a plain e-mail address.
func checkEmail(v *problem.Validation, path, address string) {
	a, err := netmail.ParseAddress(address)
	if err != nil || a.Name != "" || a.Address != address || len(address) > maxEmail {
		v.AddCode("invalid_format", path, "must be an e-mail address")
		return
	}
	v.Line(path, address, 1, maxEmail)
}

// normalPhone returns the number in E.164 form, or adds an issue.
func normalPhone(v *problem.Validation, path string, number NullString) NullString {
	if number == "" {
		return ""
	}
	n, ok := phone.Parse(string(number), "")
	if !ok {
		v.AddCode("invalid_format", path, "must be a telephone number with its country code, as in +4915112345678")
		return number
	}
	return NullString(n.E164)
}

// normalLanguage returns the canonical form of a BCP 47 tag, or adds an issue
// unless its subtags are registered.
func normalLanguage(v *problem.Validation, path, tag string) string {
	parsed, err := language.Raw.Parse(tag)
	if err != nil || len(tag) > maxTag || strings.Contains(tag, "_") {
		v.AddCode("invalid_format", path, "must be a BCP 47 language tag such as de or pt-BR")
		return tag
	}
	return parsed.String()
}

func checkTimeZone(v *problem.Validation, path, name string) {
	if name == "" {
		v.AddCode("required", path, "is required")
	} else if _, err := period.Location(name); err != nil {
		v.AddCode("invalid_value", path, "%v", err)
	}
}

// checkBirthDate adds an issue unless date is empty or in the past.
func checkBirthDate(v *problem.Validation, path string, date NullString, now time.Time) {
	if date == "" {
		return
	}
	day, err := time.Parse(time.DateOnly, string(date))
	switch {
	case err != nil:
		v.AddCode("invalid_format", path, "must be a date as in 1994-05-02")
	case day.Year() < 1900:
		v.AddCode("too_small", path, "must not be before 1900")
	case !day.Before(now.Truncate(24 * time.Hour)):
		v.AddCode("too_large", path, "must be in the past")
	}
}

// checkTypes adds an issue for each id that is no vehicle type of the subaccount,
// and returns the distinct ids, never nil.
func checkTypes(v *problem.Validation, path string, ids []string, sub *Subaccount) []string {
	if len(ids) > maxList {
		v.AddCode("too_long", path, "must have at most %d values", maxList)
		return ids
	}
	distinct := make([]string, 0, len(ids))
	for i, id := range ids {
		if sub.vehicleType(id) == nil {
			v.AddCode("not_found", path+"."+strconv.Itoa(i), "must be a vehicle type of the subaccount")
		}
		if !slices.Contains(distinct, id) {
			distinct = append(distinct, id)
		}
	}
	return distinct
}

// addIssuesBelow adds the issues of err to v below path. It returns false if err is not a
// validation error.
func addIssuesBelow(v *problem.Validation, path string, err error) bool {
	e, ok := errors.AsType[*problem.Error](err)
	if !ok || e.Kind == problem.Internal || e.Kind == problem.Unavailable {
		return false
	}
	for _, issue := range e.Issues {
		at := path
		if issue.Path != "" {
			at += "." + issue.Path
		}
		v.AddCode(issue.Code, at, "%s", issue.Message)
	}
	if len(e.Issues) == 0 {
		member, _ := e.Details["member"].(string)
		if member != "" {
			path += "." + member
		}
		v.AddCode("conflict", path, "%s", e.Message)
	}
	return true
}
