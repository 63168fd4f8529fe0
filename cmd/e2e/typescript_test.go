//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/guesttest"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/interpreter"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/restored"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// typeScriptCell is a cell, and what it prints and shows. more says that it is more than
// JavaScript with types, which Node does not read by itself.
type typeScriptCell struct {
	code, want string
	more       bool
}

// typeScriptCells are run one after the other by one kernel.
func typeScriptCells() map[string]typeScriptCell {
	return map[string]typeScriptCell{
		"annotations":          {"const a1: number = 1 as any, b1: string[] = ['x']; `${a1}${b1}`", "1x", false},
		"last expression":      {"let a2: number = 40\na2 + 2", "42", false},
		"generic":              {"const id = <T,>(x: T): T => x; function two<A, B extends A>(a: A, b: B): [A, B] { return [a, b] }\nid<number>(two<number, 3>(1, 3)[1])", "3", false},
		"satisfies":            {"({ r: 1 } satisfies Record<string, number>).r!", "1", false},
		"interface and type":   {"interface I { x: number }\ntype T = I | null\nlet t: T = { x: 7 }; t?.x", "7", false},
		"overloads":            {"function o(x: string): void; function o(x: number): void; function o(x: any) { console.log(typeof x) }\no(1)", "number", false},
		"predicate":            {"const isS = (x: unknown): x is string => typeof x === 'string'; isS('')", "true", false},
		"this parameter":       {"function th(this: { v: number }): number { return this.v }\nth.call({ v: 3 })", "3", false},
		"abstract class":       {"abstract class Ab { abstract f(): number; declare d: 1; p!: number; readonly q: number = 2; g() { return this.f() + this.q } }\nclass Co extends Ab { override f() { return 1 } }\nnew Co().g()", "3", false},
		"a field is defined":   {"class Fi { x?: number }\nObject.keys(new Fi())", "[ 'x' ]", false},
		"private and static":   {"class Ps { #x: number = 4; static s: string = 'S'; get x(): number { return this.#x } }\nPs.s + new Ps().x", "S4", false},
		"type import":          {"import type { A } from 'nowhere'; import { type Stats, existsSync } from 'fs'; existsSync('/')", "true", false},
		"import that is kept":  {"import { basename, join } from 'path'\nbasename('/a/b')", "b", false},
		"import of before":     {"join('x', 'y')", "x/y", false},
		"export":               {"export const ex: number = 5; export type Q = 1; export { }; ex", "5", false},
		"top-level await":      {"const r: number = await Promise.resolve(9); r", "9", false},
		"async generator":      {"async function* ge(n: number): AsyncGenerator<number> { yield n }\nfor await (const v of ge(6)) console.log(v)", "6", false},
		"type in the way of ;": {"type W = 1\n;(1 + 1)", "2", false},
		"unicode":              {"const größe: string = 'ä😀日本'; größe.length", "5", false},
		"unicode in a type":    {"const uni: { ключ: '日本' } | undefined = undefined; typeof uni", "undefined", false},
		"template":             {"const te: string = `a${(<number>(x: number) => x)(1)}b`; te", "a1b", false},
		"regular expression":   {"const re: RegExp = /<T>[/]:/u; re.source", "<T>[/]:", false},
		"an empty cell":        {"", "", false},
		"only types":           {"type Only = string", "", false},
		"a comment":            {"// let x: = 1\n1 /* : */", "1", false},
		"it lasts":             {"a1 + a2", "41", false},
		"redeclared":           {"const a1: string = 'again'; a1", "again", false},
		"global":               {"declare global { var gg: number }\n(globalThis as any).gg = 1; gg", "1", false},
		"ambient":              {"declare const amb: number; declare function f2(): void; declare module 'm' { }\ntypeof amb", "undefined", false},
		"optional chaining":    {"const oc: any = null; oc?.a!.b ?? 'none'", "none", false},
		"huge":                 {strings.Repeat("// 64 bytes of a comment about nothing: a cell may be of any size\n", 1<<15) + "const hu: number = 1; hu", "1", false},
		"enum":                 {"enum En { A = 2, B }\nEn[3] + En.A", "B2", true},
		"const enum":           {"const enum Ce { A = 'x' }\nCe.A", "x", true},
		"namespace":            {"namespace Na { export const x: number = 8 }\nNa.x", "8", true},
		"parameter property":   {"class Pa { constructor(private x: number, public y = 2) { } z() { return this.x } }\nnew Pa(1).z() + new Pa(1).y", "3", true},
		"decorator":            {"function de(c: any) { c.seen = true }\n@de class Dc { static seen: boolean }\nDc.seen", "true", true},
		"method decorator":     {"function md(t: any, k: string, d: PropertyDescriptor) { d.value = () => k }\nclass Dm { @md f(): string { return '' } }\nnew Dm().f()", "f", true},
		"JSX":                  {"var React = { createElement: (t: any, p: any, ...c: any[]) => t + c }\nconst jx = <b>x</b>; jx", "bx", true},
		"angle brackets":       {"const an = <number>(4 as unknown); an", "4", true},
		"import equals":        {"import os2 = require('os'); typeof os2.EOL", "string", true},
		"error":                {"function thrower(x: number): never {\n  throw new TypeError('of ' + x)\n}\n\nthrower(3)", "TypeError: of 3 @2", false},
		"error after a type":   {"type Long = {\n  a: 1\n}\nlet q: Long = { a: 1 }\nundefinedName", "ReferenceError: undefinedName is not defined @5", false},
	}
}

// order is that of cells which need others; the rest may come at any time.
var order = []string{"annotations", "last expression", "it lasts", "redeclared", "import that is kept", "import of before"}

// complaints are cells that are no TypeScript, and what TypeScript's compiler says.
var complaints = map[string]string{
	"let b: = 2":                       `SyntaxError: Unexpected "=" (line 1)`,
	"let a = 1\nlet = = 2":             `SyntaxError: Unexpected "=" (line 2)`,
	"const c: number = 1\n\n}":         `SyntaxError: Unexpected "}" (line 3)`,
	"let twice = 1; let twice = 2":     `SyntaxError: The symbol "twice" has already been declared (line 1)`,
	"const s = 'open":                  "SyntaxError: Unterminated string literal (line 1)",
	"function f(x: number { return x}": `SyntaxError: Expected ")" but found "{" (line 1)`,
	"ä: = 1":                           `SyntaxError: Unexpected "=" (line 1)`,
}

// TestTypeScriptCells runs cells with the program that makes JavaScript of TypeScript, on
// a Node that knows nothing of types and on one that does, and without that program on
// the latter: what it reads at all then has the same effect.
func TestTypeScriptCells(t *testing.T) {
	own, err := exec.LookPath("node")
	if err != nil {
		missing(t, "node", err)
	}
	for name, c := range map[string]struct {
		node    string
		program bool
	}{
		"this machine's Node, with the program":    {own, true},
		"Node that erases types, with the program": {"", true},
		"Node that erases types, by itself":        {"", false},
		"Node that knows no types, and no program": {own, false},
	} {
		t.Run(name, func(t *testing.T) {
			if c.node == "" {
				c.node = typedNode(t)
			}
			b := guesttest.New(t, func(cfg *settings.Config) {
				cfg.Interpreters[settings.JavaScript] = c.node
				cfg.TypeScript = ""
				if c.program {
					cfg.TypeScript = testenv.TypeScript(t)
				}
			})
			ip, err := interpreter.New(b.Ctx, b.Settings, b.Children, restored.New())
			if err != nil {
				t.Fatal(err)
			}
			server := b.Serve(ip.Handler(), ip.Close)
			run := func(code string) string {
				return saidBy(guesttest.Run(t, server, guesttest.Call{Language: settings.TypeScript, Code: code}))
			}
			if first := run("1 as any"); !c.program && strings.Contains(first, "cubby-typescript") {
				if c.node != own {
					t.Fatalf("the Node that erases types: %s", first)
				}
				return // it says what is missing
			} else if first != "1" {
				t.Fatalf("%q", first)
			}
			cells := typeScriptCells()
			names := append([]string{}, order...)
			for name := range cells {
				if !slices.Contains(order, name) {
					names = append(names, name)
				}
			}
			for _, name := range names {
				cell := cells[name]
				got := run(cell.code)
				switch {
				case !c.program && cell.more:
					if !strings.Contains(got, "rror: ") {
						t.Errorf("%s: Node alone says %q", name, got)
					}
				case got != cell.want:
					t.Errorf("%s: %q, want %q", name, got, cell.want)
				}
			}
			for code, want := range complaints {
				got := run(code)
				if !c.program {
					want = "SyntaxError: "
					got = got[:min(len(got), len(want))]
				}
				if got != want {
					t.Errorf("%q: %q, want %q", code, got, want)
				}
			}
		})
	}
}

// typedNode returns a Node that erases types by itself, which npm brings.
func typedNode(t *testing.T) string {
	t.Helper()
	install(t, "node")
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	path, err := filepath.Abs(filepath.Join("node", "node_modules", "node-linux-"+arch, "bin", "node"))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		missing(t, "Node 24", err)
	}
	return path
}

// saidBy is what a cell printed and showed, or its error with the line of the cell.
func saidBy(a guesttest.Answer) string {
	if a.Failure != nil {
		said := a.Failure.Name + ": " + a.Failure.Value
		if _, place, ok := strings.Cut(a.Failure.Traceback, ">:"); ok && a.Failure.Name != "SyntaxError" {
			line, _, _ := strings.Cut(place, ":")
			said += " @" + line
		}
		return said
	}
	said := strings.TrimSuffix(a.Stdout, "\n")
	for _, r := range a.Results {
		said += r.Text
	}
	if a.Stderr != "" {
		said += " stderr: " + a.Stderr
	}
	return said
}
