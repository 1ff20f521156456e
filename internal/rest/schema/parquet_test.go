package schema_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/rest/schema"

	"github.com/parquet-go/parquet-go"
)

var parquetRecord = &schema.Record{Name: "sample", Members: []schema.Member{
	{Name: "id", Type: schema.ID()},
	{Name: "secret", Type: schema.Text(), WriteOnly: true},
	{Name: "amount", Type: schema.Integer(), Nullable: true},
	{Name: "at", Type: schema.Timestamp()},
	{Name: "local", Type: schema.Formatted("date-time", 40)},
	{Name: "day", Type: schema.Date()},
	{Name: "place", Nullable: true, Type: schema.Object(schema.Member{Name: "lat", Type: schema.Number()}, schema.Member{Name: "name", Type: schema.Text()})},
	{Name: "state", Type: schema.Enum("open", "closed")},
	{Name: "good", Type: schema.Bool()},
	{Name: "metadata", Type: schema.Metadata()},
	{Name: "tags", Type: schema.Array(schema.Text(), 10)},
}}

// readParquet returns the rows of a file, each cell as text, and the types of its columns.
func readParquet(t *testing.T, text []byte) (types string, rows []string) {
	t.Helper()
	file, err := parquet.OpenFile(bytes.NewReader(text), int64(len(text)))
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range file.RowGroups() {
		reader := group.Rows()
		buffer := make([]parquet.Row, 1)
		for {
			n, err := reader.ReadRows(buffer)
			if n == 1 {
				var cells []string
				for _, v := range buffer[0] {
					cells = append(cells, fmt.Sprint(v))
				}
				rows = append(rows, strings.Join(cells, "|"))
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return file.Schema().String(), rows
}

func TestParquet(t *testing.T) {
	var out bytes.Buffer
	w := schema.NewParquetWriter(&out, parquetRecord)
	for _, record := range []string{
		`{"id":"a","amount":9007199254740993,"at":"2026-03-14T09:26:53.250Z","local":"2026-03-29T00:00:00+01:00","day":"2026-03-14","place":{"lat":52.5,"name":"=\"x\"\n"},"state":"open","good":true,"metadata":{"k":"v"},"tags":["n"]}`,
		`{"id":"b","amount":null,"at":"1969-12-31T23:59:59.999Z","local":"2026-03-29T00:00:00Z","day":"1969-12-31","place":null,"state":"closed","good":false,"metadata":{},"tags":[]}`,
	} {
		if err := w.Write([]byte(record)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	types, rows := readParquet(t, out.Bytes())
	want := `message sample {
	optional binary id (STRING);
	optional int64 amount (INT(64,true));
	optional int64 at (TIMESTAMP(isAdjustedToUTC=true,unit=MILLIS));
	optional int64 local (TIMESTAMP(isAdjustedToUTC=true,unit=MILLIS));
	optional int32 day (DATE);
	optional double place.lat;
	optional binary place.name (STRING);
	optional binary state (STRING);
	optional boolean good;
	optional binary metadata (JSON);
	optional binary tags (JSON);
}`
	if types != want {
		t.Errorf("got %s\nwant %s", types, want)
	}
	for i, want := range []string{
		`a|9007199254740993|1773480413250|1774738800000|20526|52.5|="x"` + "\n" + `|open|true|{"k":"v"}|["n"]`,
		`b|<null>|-1|1774742400000|-1|<null>|<null>|closed|false|{}|[]`,
	} {
		if i >= len(rows) || rows[i] != want {
			t.Errorf("row %d: got %q, want %q", i, rows, want)
		}
	}
	if err := schema.NewParquetWriter(io.Discard, parquetRecord).Write([]byte(`{"id":"a","amount":"x"}`)); err == nil {
		t.Error("a text was written as an integer")
	}
}

// TestParquetGroups: rows leave the memory of the writer in groups.
func TestParquetGroups(t *testing.T) {
	var out bytes.Buffer
	w := schema.NewParquetWriter(&out, parquetRecord)
	for i := range 25_000 {
		if i == 24_000 && out.Len() == 0 {
			t.Error("nothing was written before the end")
		}
		if err := w.Write(fmt.Appendf(nil, `{"id":"%d","amount":%d}`, i, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	_, rows := readParquet(t, out.Bytes())
	if len(rows) != 25_000 || !strings.HasPrefix(rows[24_999], "24999|24999|<null>") {
		t.Errorf("%d rows", len(rows))
	}
}

// TestParquetLargeRows: rows with much metadata leave the memory in smaller groups.
func TestParquetLargeRows(t *testing.T) {
	var out bytes.Buffer
	w := schema.NewParquetWriter(&out, parquetRecord)
	record := fmt.Appendf(nil, `{"id":"a","metadata":{"k":%q}}`, strings.Repeat("x", 100<<10))
	for i := range 500 {
		if i == 200 && out.Len() == 0 {
			t.Error("20 MB are in memory")
		}
		if err := w.Write(record); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(); err != nil {
		t.Fatal(err)
	}
	if _, rows := readParquet(t, out.Bytes()); len(rows) != 500 {
		t.Errorf("%d rows", len(rows))
	}
}
