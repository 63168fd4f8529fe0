package validate

import (
	"slices"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// What Node and Bash run in the sandbox is valid here, too.
func TestAsTheKernels(t *testing.T) {
	for _, c := range []Code{
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
		if !slices.Contains(sandboxed(t).Languages(), codeexec.NormalizeLanguage(c.Language)) {
			t.Logf("the sandbox has no %s", c.Language)
			continue
		}
		res, err := sandboxed(t).ExecuteCode(t.Context(), codeexec.CodeExecutionInput{
			CodeBlocks: []codeexec.CodeBlock{{Language: c.Language, Code: c.Source}}, ExecutionID: "kernel",
		})
		if err != nil {
			t.Fatal(err)
		}
		runs := !strings.Contains(res.Output, "SyntaxError") && !strings.Contains(res.Output, "syntax error")
		if r := check(t, nil, nil, c.Language, c.Source); r.Valid != runs {
			t.Errorf("%q: valid %v: %+v; the kernel says %q", c.Source, r.Valid, r.Errors, res.Output)
		}
	}
}
