package parsers_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cubby-sandbox/cubby/agent/parsers"
	"github.com/cubby-sandbox/cubby/agent/steps"
	"github.com/cubby-sandbox/cubby/agent/validate"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/e2b"
	"github.com/cubby-sandbox/cubby/codeexec/sandbox"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// shared is one sandbox for all tests of this package.
type shared struct {
	once     sync.Once
	executor *e2b.CodeExecutor
	err      error
}

var box shared

func TestMain(m *testing.M) {
	if err := testenv.SetBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if box.executor != nil {
		if err := box.executor.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func sandboxed(t *testing.T) codeexec.CodeExecutor {
	t.Helper()
	box.once.Do(func() {
		box.executor, box.err = sandbox.New(t.Context(), sandbox.Config{Embedded: embedded.Config{Python: "/usr/bin/python3"}})
	})
	if box.err != nil {
		t.Fatal(box.err)
	}
	return box.executor
}

// What Node and Bash run in the sandbox is valid here, too.
func TestAsTheKernels(t *testing.T) {
	for _, c := range []code{
		{"js", "await 1; const {a, ...b} = {a: 1, c: 2}; label: for (;;) break label"},
		{"js", "import fs from 'node:fs'; fs.existsSync('x'); import('node:path')"},
		{"js", "var x = 010; var arguments = 1; a?.b; var a; x ??= 1n; /(?<y>\\d)/v"},
		{"js", "#!/usr/bin/env node\nclass A { static #p = 1; static { this.q = A.#p } get [1]() {} }\nfor await (const x of []) ;"},
		{"js", "{\"use strict\"}\nfunction* g() { yield* [] }\nif (0) function f() {}\n<!-- html comment"},
		{"js", "export const z = 1; export default function () {}"},
		{"ts", "enum E { A }; namespace N { export const a = 1 }; abstract class B<T extends object> { constructor(private readonly x: T) {} }"},
		{"ts", "const x = <number>1; let y = 1 satisfies number; import type {A} from 'fs'; declare const q: string; type T = typeof x"},
		{"bash", "shopt -s extglob\nls !(a) +(b) 2>/dev/null; coproc cat; kill %1; echo ${x@Q} ${!x*} ${x^^}"},
		{"bash", "declare -A m=([\"a b\"]=1 [c]=2); m[$x]=1; (( m[c]++ )); [[ a =~ ^(b|c)$ ]] || echo $'\\x41' <<<x >&2 |& cat"},
		{"bash", "select x in a; do break; done <<< 1; case x in (a|b) ;& c) ;; esac; function f { local -n r=$1; }; time -p true; echo {1..3} $[1+1]"},
		{"bash", "while read -r l; do :; done < <(echo 1); exec {fd}>/dev/null; cat <<-'E'\n\tx\n\tE\nlet x=1+2; echo $((2**3, 4#12)) `echo \\`echo 1\\``"},
	} {
		if !slices.Contains(sandboxed(t).Languages(), codeexec.NormalizeLanguage(c.language)) {
			t.Logf("the sandbox has no %s", c.language)
			continue
		}
		res, err := sandboxed(t).ExecuteCode(t.Context(), codeexec.CodeExecutionInput{
			CodeBlocks: []codeexec.CodeBlock{{Language: c.language, Code: c.source}}, ExecutionID: "kernel",
		})
		if err != nil {
			t.Fatal(err)
		}
		runs := !strings.Contains(res.Output, "SyntaxError") && !strings.Contains(res.Output, "syntax error")
		if r := check(t, nil, c.language, c.source); r.Valid != runs {
			t.Errorf("%q: valid %v: %+v; the kernel says %q", c.source, r.Valid, r.Errors, res.Output)
		}
	}
}

// Commands in Python are looked at as Bash.
func TestCommandsInPython(t *testing.T) {
	v, err := validate.New(sandboxed(t), validate.Options{Policy: &validate.Policy{Default: validate.Review}, Checkers: parsers.Checkers()})
	if err != nil {
		t.Fatal(err)
	}
	for code, want := range map[string][]string{
		"x = 1\n!rm -rf x":   {"python.process.shell", "bash.destructive.rm"},
		"y = 1\na = !curl x": {"python.process.shell", "bash.network.curl"},
		"%%bash\n\nsudo x":   {"python.magic.bash", "bash.privilege.sudo"},
	} {
		r, err := v.Validate(t.Context(), validate.Code{Language: "python", Source: code})
		if err != nil || !r.Valid {
			t.Fatalf("%q: %+v, %v", code, r, err)
		}
		for _, rule := range want {
			i := slices.IndexFunc(r.Findings, func(f validate.Finding) bool { return f.Rule == rule })
			if i < 0 || strings.HasPrefix(rule, "bash.") && r.Findings[i].Line == 0 {
				t.Errorf("%q: %s is not among %+v", code, rule, r.Findings)
			}
		}
	}
}

// What steps.TestCode cannot run by itself.
func TestTestCode(t *testing.T) {
	for _, c := range []struct {
		code  codeexec.CodeBlock
		cases []steps.Case
	}{
		{
			codeexec.CodeBlock{Language: "ts", Code: "import { basename } from 'path';\nexport function add(a: number, b: number): number { return a + b }\n" +
				"enum E { A = 7 }\nexport const file = (p: string) => basename(p), e = () => E.A;"},
			[]steps.Case{{Call: "add(2, 3)", Expected: 5}, {Call: "file('/a/b')", Expected: "b"}, {Call: "e()", Expected: 7}},
		},
		{codeexec.CodeBlock{Language: "js", Code: "export const twice = (n) => 2 * n;"}, []steps.Case{{Call: "twice(4)", Expected: 8}}},
	} {
		r, err := steps.TestCode(t.Context(), sandboxed(t), c.code, c.cases, steps.WithTranspiler(parsers.CommonJS))
		if err != nil || !r.OK() || r.Total != len(c.cases) {
			t.Errorf("%+v, %v", r, err)
		}
	}
	r, err := steps.TestCode(t.Context(), sandboxed(t), codeexec.CodeBlock{Language: "ts", Code: "let x: = 1"}, []steps.Case{{Call: "x"}},
		steps.WithTranspiler(parsers.CommonJS))
	if err != nil || r.Error == nil || r.Error.Type != "SyntaxError" || r.Error.Line != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
