package importer_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"testing"

	"github.com/kickstand-dev/kickstand/internal/importer"
)

// TestEndlessRecords: a quote that is not closed, and a JSON value without an end, cost bounded memory.
func TestEndlessRecords(t *testing.T) {
	const size = 400 << 20
	for source, tt := range map[string]struct{ name, begin string }{
		importer.CSV:     {"a.csv", "ticket_id,customer_email,message_at,text\n1,ada@rider.example,2024-05-01,Good\n2,ada@rider.example,2024-05-01,\"no end\n"},
		importer.Zendesk: {"a.json", `{"users":[{"id":1,"name":"Ada","role":"end-user"}],"tickets":[{"id":2,"subject":"`},
	} {
		t.Run(source, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), tt.name)
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			line := append(bytes.Repeat([]byte("x"), 1<<20-1), ' ')
			if source == importer.CSV {
				line[len(line)-1] = '\n'
			}
			if _, err := f.WriteString(tt.begin); err != nil {
				t.Fatal(err)
			}
			for range size / len(line) {
				if _, err := f.Write(line); err != nil {
					t.Fatal(err)
				}
			}
			open := importer.OpenCSV
			if source == importer.Zendesk {
				open = func(path string, o importer.Options, _ importer.Own) (importer.Reader, error) {
					return importer.OpenZendesk(path, o, nil)
				}
			}
			in, err := open(path, importer.Options{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			before := allocated()
			var r importer.Report
			_, tickets, err := in.Index(t.Context(), &r)
			if err != nil || tickets > 1 || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Reason, "the rest of the file is unreadable") {
				t.Errorf("%d tickets, problems %v, %v", tickets, r.Problems, err)
			}
			// A buffer of more than 64 MB, which grows by doubling; all of the file would be a gigabyte.
			if n := allocated() - before; n > 600<<20 {
				t.Errorf("%d MB of memory", n>>20)
			}
		})
	}
}

// allocated returns the bytes that were ever allocated.
func allocated() uint64 {
	list := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(list)
	return list[0].Value.Uint64()
}
