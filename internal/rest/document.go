package rest

import (
	"strconv"

	"github.com/kickstand-dev/kickstand/internal/rest/schema"
)

// Document is an already encoded record. A handler may answer with a Document wherever it
// answers with a record; it is written without decoding or checks, so that an export streams at
// the speed of the database.
type Document struct {
	// JSON is one object as a GET answers it, from { to }, without line breaks. It must not be
	// changed. In an export it must be valid only until the next record is read.
	JSON []byte
	// Revision increases with every change of the record and serves as its entity tag. 0: the
	// tag is a hash of the text.
	Revision int64
}

// With returns the document with an additional field with a JSON value: an expansion, or a
// field of this answer only. It has no revision, since its text differs.
func (d Document) With(name string, value []byte) Document {
	if value == nil {
		value = []byte("null")
	}
	head := d.JSON[:max(0, len(d.JSON)-1)]
	text := make([]byte, 0, len(head)+len(name)+len(value)+5)
	text = append(text, head...)
	if len(head) > 1 {
		text = append(text, ',')
	}
	text = append(text, schema.Quote(name)...)
	text = append(text, ':')
	text = append(text, value...)
	return Document{JSON: append(text, '}')}
}

// MarshalJSON implements [json.Marshaler], for a document nested in a record.
func (d Document) MarshalJSON() ([]byte, error) { return d.JSON, nil }

// tagOf returns the entity tag of a record with the JSON text.
func tagOf(record any, text []byte) string {
	if d, ok := record.(Document); ok && d.Revision > 0 {
		return `"` + strconv.FormatInt(d.Revision, 10) + `"`
	}
	return etag(text)
}
