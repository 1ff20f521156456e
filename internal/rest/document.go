package rest

import "strconv"

// Document is a record that is encoded already. Wherever a handler gives a
// record, a Document is written as it is: neither read nor checked again, so
// that an export streams as fast as records are read.
type Document struct {
	// JSON is one object, as a GET answers it, from { to } and without line
	// ends. It is not changed. In an export it need hold only until the next
	// record is read.
	JSON []byte
	// Revision grows with every change of the record, and is its entity tag. 0:
	// the tag is made from the text.
	Revision int64
}

// With returns the document with one member more, which is JSON: an expansion
// beside its id, or what only this answer knows. It has no revision, for it is
// not what the record was at that.
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
	text = append(text, quote(name)...)
	text = append(text, ':')
	text = append(text, value...)
	return Document{JSON: append(text, '}')}
}

// MarshalJSON implements [json.Marshaler], for a document inside of another
// record.
func (d Document) MarshalJSON() ([]byte, error) { return d.JSON, nil }

// tagOf returns the entity tag of a record, of which text is the JSON.
func tagOf(record any, text []byte) string {
	if d, ok := record.(Document); ok && d.Revision > 0 {
		return `"` + strconv.FormatInt(d.Revision, 10) + `"`
	}
	return etag(text)
}
