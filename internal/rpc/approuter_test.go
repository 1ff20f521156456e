package rpc

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kickstand-dev/kickstand/internal/account"
	"github.com/kickstand-dev/kickstand/internal/desk"
	"github.com/kickstand-dev/kickstand/internal/event"
	"github.com/kickstand-dev/kickstand/internal/webhook"
	"github.com/kickstand-dev/kickstand/internal/webhook/payload"
)

var update = flag.Bool("update", false, "rewrite the types of the TypeScript library")

// TestAppRouter checks that the TypeScript library has the types of the procedures. With
// -update it writes them.
func TestAppRouter(t *testing.T) {
	const file = "../../clients/typescript/src/trpc.ts"
	want := appRouter(slices.Concat(
		AccountProcedures(nil, nil), FactorProcedures(nil, nil), MemberProcedures(nil, nil),
		BillingProcedures(nil), WebhookProcedures(nil), SLAProcedures(nil),
	))
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from the procedures: run go test ./internal/rpc -run TestAppRouter -update", file)
	}
}

const appRouterHead = `// Code generated from internal/rpc. DO NOT EDIT.
import type { TRPCBuiltRouter, TRPCDefaultErrorShape, TRPCMutationProcedure, TRPCQueryProcedure } from "@trpc/server";

/** A wrong field of an input. */
export interface Issue {
  path: string;
  message: string;
}

/** The error of a call. */
export interface ErrorShape extends TRPCDefaultErrorShape {
  data: TRPCDefaultErrorShape["data"] & {
    reason?: %s;
    issues?: Issue[];
  };
}

interface Types<Input, Output> {
  meta: unknown;
  input: Input;
  output: Output;
  errorShape: ErrorShape;
}
type Query<Input, Output> = TRPCQueryProcedure<Types<Input, Output>>;
type Mutation<Input, Output> = TRPCMutationProcedure<Types<Input, Output>>;
`

// appRouter returns the module with the types of procedures for the public TypeScript client.
func appRouter(procedures []Procedure) []byte {
	w := &typeWriter{named: map[string]reflect.Type{}}
	var router strings.Builder
	group := ""
	slices.SortStableFunc(procedures, func(a, b Procedure) int { return strings.Compare(a.name, b.name) })
	for _, p := range procedures {
		prefix, name, _ := strings.Cut(p.name, ".")
		if prefix != group {
			if group != "" {
				router.WriteString("  };\n")
			}
			fmt.Fprintf(&router, "  %s: {\n", prefix)
			group = prefix
		}
		kind, input := "Query", "void"
		if p.method == http.MethodPost {
			kind = "Mutation"
		}
		if p.in.NumField() > 0 {
			input = w.typeOf(p.in, true)
			if allOptional(p.in) {
				input += " | void"
			}
		}
		fmt.Fprintf(&router, "    %s: %s<%s, %s>;\n", name, kind, input, w.typeOf(p.out, false))
	}
	router.WriteString("  };\n")

	var text strings.Builder
	fmt.Fprintf(&text, appRouterHead, union(reasons))
	text.WriteString(w.text.String())
	text.WriteString("\n/** The procedures by group. */\nexport type Procedures = {\n" + router.String() + "};\n")
	text.WriteString(`
/** The server's router, for ` + "`createTRPCClient<AppRouter>`" + ` with the transformer superjson. */
export type AppRouter = TRPCBuiltRouter<
  { ctx: object; meta: object; errorShape: ErrorShape; transformer: true },
  Procedures
>;
`)
	return []byte(text.String())
}

// literals are the values of types that are texts.
var literals = map[reflect.Type][]string{
	reflect.TypeFor[account.Role]():     {string(account.Admin), string(account.Agent)},
	reflect.TypeFor[account.Plan]():     {string(account.Free), string(account.Pro), string(account.Business)},
	reflect.TypeFor[desk.Priority]():    {string(desk.PriorityLow), string(desk.PriorityNormal), string(desk.PriorityHigh), string(desk.PriorityUrgent)},
	reflect.TypeFor[payload.Form]():     {string(payload.Flat), string(payload.Nested)},
	reflect.TypeFor[webhook.Schedule](): {string(webhook.LongSchedule), string(webhook.ShortSchedule)},
	reflect.TypeFor[webhook.State]():    {string(webhook.Enabled), string(webhook.Disabled), string(webhook.Failed)},
	reflect.TypeFor[webhook.Wait]():     {string(webhook.WaitNothing), string(webhook.WaitTime), string(webhook.WaitTurn), string(webhook.WaitEnabled)},
	reflect.TypeFor[event.Source]():     {string(event.Helpdesk), string(event.Fleet), string(event.Sandbox)},
	reflect.TypeFor[event.Name]():       nil, // any text: more are added
}

// union returns the type that has only these values.
func union(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = fmt.Sprintf("%q", v)
	}
	return strings.Join(quoted, " | ")
}

// typeWriter collects the interfaces of structs.
type typeWriter struct {
	text  strings.Builder
	named map[string]reflect.Type
}

// typeOf returns the TypeScript type of the JSON of a Go type, of an input or an output. It
// writes an interface for each named struct.
func (w *typeWriter) typeOf(t reflect.Type, input bool) string {
	if values := literals[t]; values != nil {
		return union(values)
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		if input {
			return "Date | string"
		}
		return "string"
	case reflect.TypeFor[json.RawMessage]():
		return "unknown"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.String:
		return "string"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64:
		return "number"
	case reflect.Pointer:
		return w.typeOf(t.Elem(), input) + " | null"
	case reflect.Slice:
		item := w.typeOf(t.Elem(), input)
		if strings.Contains(item, " | ") {
			item = "(" + item + ")"
		}
		return item + "[]"
	case reflect.Map:
		return "Record<string, " + w.typeOf(t.Elem(), input) + ">"
	case reflect.Interface:
		return "unknown"
	case reflect.Struct:
		return w.structOf(t, input)
	}
	panic(fmt.Sprintf("no TypeScript type for %v", t))
}

func (w *typeWriter) structOf(t reflect.Type, input bool) string {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextMarshaler]()) || t.Name() == "" && t.NumField() == 0 {
		panic(fmt.Sprintf("no TypeScript type for %v", t))
	}
	if t.Name() == "" {
		return "{\n" + w.members(t, input, "    ") + "  }"
	}
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if old, ok := w.named[name]; ok {
		if old != t {
			panic(fmt.Sprintf("%v and %v have the same name", old, t))
		}
		return name
	}
	w.named[name] = t
	members := w.members(t, input, "  ")
	fmt.Fprintf(&w.text, "\nexport interface %s {\n%s}\n", name, members)
	return name
}

// members returns the members of a struct as encoding/json and decode.go have them.
func (w *typeWriter) members(t reflect.Type, input bool, indent string) string {
	var text strings.Builder
	for _, f := range reflect.VisibleFields(t) {
		name, optional, ok := member(f)
		if !ok || !promoted(t, f.Index) {
			continue
		}
		kind := w.typeOf(f.Type, input)
		mark := ""
		switch {
		case input && optional:
			// Null counts as missing.
			mark, kind = "?", strings.TrimSuffix(kind, " | null")+" | null | undefined"
			if strings.HasPrefix(kind, "unknown") {
				kind = "unknown"
			}
		case !input && optional && f.Type.Kind() != reflect.Pointer:
			mark = "?"
		}
		fmt.Fprintf(&text, "%s%s%s: %s;\n", indent, name, mark, kind)
	}
	return text.String()
}

// member returns the JSON name of a field, and whether it may be absent.
func member(f reflect.StructField) (name string, optional, ok bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	if !f.IsExported() || name == "-" || flattened(f) {
		return "", false, false
	}
	if name == "" {
		name = f.Name
	}
	return name, f.Type.Kind() == reflect.Pointer || strings.Contains(options, "omit"), true
}

// allOptional reports whether an input may be left out.
func allOptional(t reflect.Type) bool {
	for _, f := range reflect.VisibleFields(t) {
		if _, optional, ok := member(f); ok && promoted(t, f.Index) && !optional {
			return false
		}
	}
	return true
}
