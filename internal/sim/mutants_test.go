package sim

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

type mutant struct{ name, file, old, new string }

// source returns the text of the changed file.
func (m mutant) source(t *testing.T, root string) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		t.Errorf("%s: %s has the text to replace %d times: adapt the mutant", m.name, m.file, n)
	}
	return strings.Replace(string(source), m.old, m.new, 1)
}

// TestMutantsApply checks that the lines exist that the mutants change.
func TestMutantsApply(t *testing.T) {
	for _, m := range mutants {
		m.source(t, "../..")
	}
}

// mutants are faults put into the program on purpose. Each is a replacement in one file.
var mutants = []mutant{
	{"a job is finished without its lease", "internal/queue/statements.go",
		"DELETE FROM jobs WHERE id = $1 AND lease = $2", "DELETE FROM jobs WHERE id = $1 AND $2 <> ''"},
	{"a lease is measured by the clock of the process", "internal/queue/statements.go",
		"r.PerLane, lease, tx.Now.Add(", "r.PerLane, lease, time.Now().Add("},
	{"a claim ignores running jobs", "internal/queue/statements.go",
		"$3 - (SELECT count(*) FROM jobs r WHERE r.kind = $1 AND r.state = 2 AND r.lane = q.lane)", "$3 + 0"},
	{"expired leases are not reclaimed", "internal/queue/statements.go",
		"return move(sqlReclaim)", "return nil"},
	{"a delayed job does not block its ordered lane", "internal/queue/statements.go",
		"AND NOT coalesce(%s < picked.seq, FALSE)", "AND coalesce(%s, 0) IS NOT NULL"},
	{"a job is released instead of finished", "internal/queue/statements.go",
		"DELETE FROM jobs WHERE id = $1 AND lease = $2", "UPDATE jobs SET state = 0, lease = NULL, lease_until = NULL WHERE id = $1 AND lease = $2"},
	{"jobs are ordered by id", "internal/queue/queue.go",
		"seqs[i] = first + int64(i)", `if jobs[i].ID == "" {
				jobs[i].ID = NewID()
			}
			seqs[i], _ = strconv.ParseInt(strings.ReplaceAll(jobs[i].ID, "-", "")[:15], 16, 64)
			_ = first`},
	{"only notifications announce jobs", "internal/queue/poll.go",
		"if f.look {", "if f.look && f.kind == \"\" {"},
	{"a delivery is posted whether or not its lease has ended", "internal/webhook/deliver.go",
		"if err := j.CheckLease(); err != nil {", "if err := j.CheckLease(); err != nil && len(body) == 0 {"},
	{"repeated requests are not recognized", "internal/inbound/store.go",
		"prepared{e.fingerprint(),", "prepared{append(e.fingerprint(), e.ID...),"},
	{"a message is stored although its files are not", "internal/inbound/process.go",
		"StoreFiles(ctx, &channel.Message{Attachments: list}); err != nil {", "StoreFiles(ctx, &channel.Message{Attachments: list}); err != nil && len(list) == 0 {"},
	{"the jobs of deliveries are enqueued after the commit", "internal/webhook/fanout.go",
		"if err := s.queue.EnqueueTx(ctx, tx, jobs...); err != nil {\n		return err\n	}", `tx.AfterCommit(func() {
		go s.db.Write(context.Background(), func(tx *db.Tx) error { return s.queue.EnqueueTx(context.Background(), tx, jobs...) })
	})`},
	{"a submission is not recorded before the call", "internal/outbound/send.go",
		"return a.desk.RecordSubmissionTx(ctx, tx, &a.w, by)", "a.w.SubmittedAt = tx.Now\n		return nil"},
	{"an uncertain message is sent again without a search", "internal/outbound/send_api.go",
		"id, err := a.search(ctx, c, credentials)", "_ = c\n			id, err := \"\", error(nil)"},
	{"an unclear result counts as a failure", "internal/outbound/send_api.go",
		`Verdict: channel.VerdictUnclear, Reason: "the provider did not respond`, `Verdict: channel.VerdictRetry, Reason: "the provider did not respond`},
}

// TestMutants checks that the simulator finds each mutant within the seeds of a CI run, by a rule
// that it breaks. It builds the tests with each, so it runs only if KICKSTAND_TEST_MUTANTS is set.
func TestMutants(t *testing.T) {
	if os.Getenv("KICKSTAND_TEST_MUTANTS") == "" {
		t.Skip("set KICKSTAND_TEST_MUTANTS=1 to run it")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			path := filepath.Join(root, m.file)
			dir := t.TempDir()
			mutated := filepath.Join(dir, "mutated.go")
			overlay := filepath.Join(dir, "overlay.json")
			list, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
			if err != nil {
				t.Fatal(err)
			}
			for name, data := range map[string]string{mutated: m.source(t, root), overlay: string(list)} {
				if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			program := filepath.Join(dir, "sim.test")
			if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, ".").CombinedOutput(); err != nil {
				t.Fatalf("build: %v\n%s", err, out)
			}
			begun := time.Now()
			out, err := exec.Command(program, "-test.run=^TestSim$", "-test.v").CombinedOutput()
			took := time.Since(begun)
			if err == nil {
				t.Fatalf("not found in %.1f s:\n%s", took.Seconds(), out)
			}
			seed, found := "", ""
			for line := range strings.Lines(string(out)) {
				if _, after, ok := strings.Cut(line, ": seed "); ok && seed == "" {
					seed, _, _ = strings.Cut(after, " ")
				}
				if strings.Contains(line, "sim_test.go:") && !strings.Contains(line, "seed") && found == "" || strings.Contains(line, "panic:") && found == "" {
					found = strings.TrimSpace(line)
				}
			}
			if found == "" || strings.Contains(found, "test timed out") {
				t.Fatalf("seed %s fails, but breaks no rule:\n%s", seed, out)
			}
			t.Logf("found in %.1f s at seed %s: %s", took.Seconds(), seed, found)
		})
	}
}
