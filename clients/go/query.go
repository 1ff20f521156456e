package kickstand

import (
	"fmt"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// cursorParams are the parameters of a list with another cursor.
type cursorParams struct {
	params any
	cursor string
}

// encodeQuery encodes the fields of a struct by their tags query. Zero values are left out.
func encodeQuery(params any) (url.Values, error) {
	query := url.Values{}
	if next, ok := params.(cursorParams); ok {
		query, err := encodeQuery(next.params)
		query.Set("cursor", next.cursor)
		return query, err
	}
	if params == nil {
		return query, nil
	}
	v := reflect.ValueOf(params)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			continue
		}
		name := v.Type().Field(i).Tag.Get("query")
		text, err := queryText(v.Field(i))
		if err != nil {
			return query, fmt.Errorf("kickstand: parameter %s: %w", name, err)
		}
		if text != "" {
			query.Set(name, text)
		}
	}
	return query, nil
}

// queryText returns the text of a value. Items of a list are joined by commas.
func queryText(v reflect.Value) (string, error) {
	switch value := v.Interface().(type) {
	case time.Time:
		return timeText(value), nil
	case Optional[int64]:
		return strconv.FormatInt(value.value, 10), nil
	case Optional[float64]:
		return strconv.FormatFloat(value.value, 'f', -1, 64), nil
	case Optional[bool]:
		return strconv.FormatBool(value.value), nil
	}
	switch v.Kind() {
	case reflect.String:
		return v.String(), nil
	case reflect.Int:
		return strconv.FormatInt(v.Int(), 10), nil
	case reflect.Slice:
		var items []string
		for i := range v.Len() {
			text, err := queryText(v.Index(i))
			if err != nil {
				return "", err
			}
			if strings.Contains(text, ",") {
				return "", fmt.Errorf("%q has a comma, which separates values", text)
			}
			items = append(items, text)
		}
		return strings.Join(items, ","), nil
	}
	return "", fmt.Errorf("a value of type %s cannot be sent", v.Type())
}
