package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// expandFrom is the first migration of each schema under the rule of [TestMigrations].
var expandFrom = map[string]int{"helpdesk": 41, "fleet": 8}

// TestMigrations: a migration either expands, so that the previous version of the program goes
// on working beside this one, or is marked as a contract with the first migration known to
// programs that no longer use what it removes ("-- contract: 0057").
func TestMigrations(t *testing.T) {
	for schema, first := range expandFrom {
		files, err := filepath.Glob(filepath.Join("..", "db", "migrations", schema, "*.sql"))
		if err != nil || len(files) < first-2 {
			t.Fatalf("%s: found %d migrations, %v", schema, len(files), err)
		}
		slices.Sort(files)
		unique := map[string]bool{}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			number, err := strconv.Atoi(filepath.Base(file)[:4])
			if err != nil {
				t.Fatal(err)
			}
			if number >= first {
				for _, wrong := range checkMigration(number, string(text), unique) {
					t.Errorf("%s/%s: %s", schema, filepath.Base(file), wrong)
				}
			}
			for _, name := range createUnique.FindAllStringSubmatch(withoutComments(string(text)), -1) {
				unique[strings.ToLower(name[1])] = true
			}
		}
	}
}

var (
	sqlComment   = regexp.MustCompile(`--[^\n]*`)
	sqlText      = regexp.MustCompile(`'(?:[^']|'')*'`)
	contractMark = regexp.MustCompile(`(?m)^-- contract: (\d{4})$`)
	createTable  = regexp.MustCompile(`(?i)\bCREATE TABLE (?:IF NOT EXISTS )?(\w+)`)
	createUnique = regexp.MustCompile(`(?i)\bCREATE UNIQUE INDEX (?:IF NOT EXISTS )?(\w+) ON (\w+)`)
	dropIndex    = regexp.MustCompile(`(?i)^DROP INDEX (?:IF EXISTS )?(\w+)$`)
	alterTable   = regexp.MustCompile(`(?is)^ALTER TABLE (?:IF EXISTS )?(?:ONLY )?(\w+) (.*)$`)
	contracting  = []struct {
		what *regexp.Regexp
		why  string
	}{
		{regexp.MustCompile(`(?i)\bDROP (TABLE|COLUMN|CONSTRAINT|VIEW|FUNCTION|TRIGGER|SEQUENCE|SCHEMA|TYPE)\b`), "drops something"},
		{regexp.MustCompile(`(?i)\bRENAME\b`), "renames something"},
		{regexp.MustCompile(`(?i)\bSET NOT NULL\b`), "forbids NULL, which the previous version may write"},
		{regexp.MustCompile(`(?i)\bALTER (COLUMN )?\w+ (SET DATA )?TYPE\b`), "changes a type"},
		{regexp.MustCompile(`(?i)\bDROP DEFAULT\b`), "drops a default, on which inserts of the previous version rely"},
		{regexp.MustCompile(`(?i)\bADD (CONSTRAINT|CHECK|UNIQUE|PRIMARY KEY|FOREIGN KEY|EXCLUDE)\b`), "adds a constraint, which rows of the previous version may violate"},
		{regexp.MustCompile(`(?i)^(TRUNCATE|REVOKE)\b`), "takes something away"},
	}
	addColumn = regexp.MustCompile(`(?is)\bADD (?:COLUMN )?(?:IF NOT EXISTS )?(\w+) ([^,]*(?:\([^)]*\)[^,]*)*)`)
)

func withoutComments(script string) string { return sqlComment.ReplaceAllString(script, "") }

// checkMigration returns the errors of a migration. unique has the unique indexes of earlier
// ones.
func checkMigration(number int, script string, unique map[string]bool) (wrong []string) {
	mark := contractMark.FindStringSubmatch(script)
	marked := mark != nil
	if marked {
		if until, _ := strconv.Atoi(mark[1]); until > number {
			wrong = append(wrong, fmt.Sprintf("the contract names migration %04d, which is later than itself", until))
		}
	}
	plain := sqlText.ReplaceAllString(withoutComments(script), "''")
	ours := map[string]bool{} // tables of this migration
	for _, m := range createTable.FindAllStringSubmatch(plain, -1) {
		ours[strings.ToLower(m[1])] = true
	}
	var contracts []string
	for statement := range strings.SplitSeq(plain, ";") {
		statement = strings.Join(strings.Fields(statement), " ")
		contracts = append(contracts, checkStatement(statement, ours, unique)...)
	}
	switch {
	case marked && len(contracts) == 0:
		wrong = append(wrong, "it is marked as a contract and takes nothing away: remove the mark")
	case !marked:
		for _, c := range contracts {
			wrong = append(wrong, c+"; expand now, and contract in a later version with the mark -- contract: NNNN (docs/adr/0046-upgrades.md)")
		}
	}
	return wrong
}

// checkStatement returns what a statement takes away from the previous version.
func checkStatement(statement string, ours, unique map[string]bool) (contracts []string) {
	note := func(why string) { contracts = append(contracts, fmt.Sprintf("%q %s", statement, why)) }
	if m := dropIndex.FindStringSubmatch(statement); m != nil {
		if unique[strings.ToLower(m[1])] {
			note("drops a unique index, which the previous version may name in ON CONFLICT")
		}
		return contracts
	}
	if m := createUnique.FindStringSubmatch(statement); m != nil && !ours[strings.ToLower(m[2])] {
		note("makes rows unique, which those of the previous version need not be")
	}
	if strings.HasPrefix(strings.ToUpper(statement), "CREATE TABLE") {
		return contracts
	}
	alter := alterTable.FindStringSubmatch(statement)
	if alter != nil && ours[strings.ToLower(alter[1])] {
		return contracts
	}
	for _, c := range contracting {
		if c.what.MatchString(statement) {
			note(c.why)
		}
	}
	if alter == nil {
		return contracts
	}
	for _, m := range addColumn.FindAllStringSubmatch(alter[2], -1) {
		rest := strings.ToUpper(m[2])
		if strings.Contains(rest, "NOT NULL") && !strings.Contains(rest, "DEFAULT") {
			note("adds a column without a default, so that inserts of the previous version fail")
		}
		if strings.Contains(rest, "UNIQUE") || strings.Contains(rest, "PRIMARY KEY") {
			note("adds a unique column")
		}
	}
	return contracts
}

func TestCheckMigration(t *testing.T) {
	unique := map[string]bool{"things_name": true}
	for _, tt := range []struct{ script, want string }{
		{"CREATE TABLE a (id BIGINT PRIMARY KEY, b TEXT NOT NULL UNIQUE);\nCREATE UNIQUE INDEX a_b ON a (b);\nALTER TABLE a ADD COLUMN c TEXT NOT NULL;", ""},
		{"ALTER TABLE things ADD COLUMN c BIGINT NOT NULL DEFAULT 0, ADD COLUMN d TEXT;\nCREATE INDEX things_c ON things (c);", ""},
		{"-- DROP TABLE things\nINSERT INTO notes (text) VALUES ('DROP TABLE things; RENAME');\nDROP INDEX things_old;", ""},
		{"ALTER TABLE things ALTER COLUMN c SET DEFAULT 1;", ""},
		{"DROP INDEX things_name;", "unique index"},
		{"CREATE UNIQUE INDEX things_c ON things (c);", "makes rows unique"},
		{"ALTER TABLE things ADD COLUMN c BIGINT NOT NULL;", "without a default"},
		{"ALTER TABLE things ADD COLUMN d TEXT, ADD COLUMN c BIGINT NOT NULL;", "without a default"},
		{"ALTER TABLE things DROP COLUMN c;", "drops"},
		{"drop table things;", "drops"},
		{"ALTER TABLE things RENAME COLUMN c TO d;", "renames"},
		{"ALTER TABLE things ALTER COLUMN c TYPE TEXT;", "changes a type"},
		{"ALTER TABLE things ALTER c SET NOT NULL;", "forbids NULL"},
		{"ALTER TABLE things ADD CONSTRAINT positive CHECK (c > 0);", "constraint"},
		{"-- Nobody reads c any more.\n-- contract: 0050\nALTER TABLE things DROP COLUMN c;", ""},
		{"-- contract: 0061\nALTER TABLE things DROP COLUMN c;", "later than itself"},
		{"-- contract: 0050\nCREATE TABLE a (id BIGINT PRIMARY KEY);", "remove the mark"},
	} {
		got := strings.Join(checkMigration(60, tt.script, unique), "\n")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s\ngot %q, want %q", tt.script, got, tt.want)
		}
	}
}
