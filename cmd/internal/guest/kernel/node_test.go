package kernel_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
	"github.com/cubby-sandbox/cubby/cmd/internal/typescript/transform"
)

func startNode(t testing.TB) *wireKernel {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node")
	}
	return wireStart(t, kernel.Node(node, wireScripts(t)))
}

// TestNode runs cells one after the other in one kernel per case.
func TestNode(t *testing.T) {
	type cell struct {
		code           string
		stdout, stderr string // exact; stderr is a substring
		text, err      string // of the main result, and "Name: value"
		json           string // of the main result
		trace          string // a substring of the traceback
		exit           int
		env            map[string]string
		cwd            string
		drain          bool
		ts             bool
	}
	for name, cells := range map[string][]cell{
		"hello":           {{code: "console.log('hello')", stdout: "hello\n"}},
		"last expression": {{code: "6*7", text: "42"}, {code: "'a';", text: "'a'"}, {code: "undefined"}, {code: "let z = 3"}, {code: "1;;", text: "1"}, {code: "null", text: "null"}},
		"not shown":       {{code: "1; if (true) { 2 }"}, {code: "1; var q = 2"}, {code: "function f(){}"}, {code: ""}, {code: "// c"}},
		"objects": {{code: "({a: 1, b: [1, 'x']})", text: "{ a: 1, b: [ 1, 'x' ] }", json: `{"a":1,"b":[1,"x"]}`}, {code: "{a: 1, b: 2}", text: "{ a: 1, b: 2 }", json: `{"a":1,"b":2}`}, {code: "[1,2]", text: "[ 1, 2 ]", json: "[1,2]"},
			{code: "new Map([[1,2]])", text: "Map(1) { 1 => 2 }"}, {code: "[NaN]", text: "[ NaN ]"}, {code: "const o = {}; o.o = o; o", text: "<ref *1> { o: [Circular *1] }"}},
		"state":          {{code: "let a = 1; const b = 2; var c = 3; class K { m() { return 'k' } }\nfunction f() { return a + b + c }"}, {code: "f()", text: "6"}, {code: "a = 10; [f(), new K().m(), K.name]", text: "[ 15, 'k', 'K' ]", json: `[15,"k","K"]`}},
		"declare again":  {{code: "const a = 1; let {x, y: [z]} = {x: 1, y: [2]}; class K {}"}, {code: "const a = 2; let [x, z = 5, ...r] = [3]; class K { n() {} }; function f() { return 1 }"}, {code: "let f = 2; const K = 3; [a, x, z, r.length, f, K]", text: "[ 2, 3, 5, 0, 2, 3 ]", json: "[2,3,5,0,2,3]"}, {code: "let a; a"}},
		"no semicolons":  {{code: "console.log('x')\nconst {a} = {a: 1}\nlet [b] = [2]\nclass C {}\n;[a, b]", stdout: "x\n", text: "[ 1, 2 ]", json: "[1,2]"}},
		"several":        {{code: "const p = 1, {q} = {q: 2}, [r] = [3]; p + q + r", text: "6"}},
		"shadow globals": {{code: "const crypto = require('crypto'); const process = require('process'); const console = globalThis.console; const performance = 1; crypto.createHash('md5').update('').digest('hex').length", text: "32"}, {code: "let JSON, Buffer, Promise; 1", text: "1"}, {code: "await 2", text: "2"}},
		"await":          {{code: "const v = await Promise.resolve(5)\nlet w = v + 1\nfor (var i = 0; i < 3; i++) { var last = i }\nfunction g() { return w }\nw", text: "6"}, {code: "[v, g(), i, last]", text: "[ 5, 6, 3, 2 ]", json: "[5,6,3,2]"}, {code: "(await 1)", text: "1"}, {code: "for await (const x of [1, 2]) console.log(x)", stdout: "1\n2\n"}, {code: "for (var k of [await 1]) {}; k", text: "1"}, {code: "if (await true) { var d; var {e} = {e: 4} }\ne", text: "4"}},
		"await a line":   {{code: "await new Promise(r => setTimeout(r, 20)); 'ok' // done", text: "'ok'"}},
		"promise":        {{code: "new Promise(r => setTimeout(() => r(7), 10))", text: "7"}, {code: "(async () => { throw new TypeError('t') })()", err: "TypeError: t", exit: 1}, {code: "Promise.resolve()"}},
		"import":         {{code: "import fs, { readFileSync as rf } from 'fs';\nimport * as path from 'node:path';\nimport 'os';\npath.join('a', typeof rf, typeof fs.readFileSync)", text: "'a/function/function'"}, {code: "path.basename('/x/y')", text: "'y'"}, {code: "import {\n  join,\n  sep\n} from 'path'\nnull.x", err: "TypeError: Cannot read properties of null (reading 'x')", trace: "<cell 3>:5:6", exit: 1}, {code: "(await import('path')).sep", text: "'/'"}, {code: "require('path').sep", text: "'/'"}},
		"import files": {
			{code: "require('fs').mkdirSync('node_modules/pkg', {recursive: true}); require('fs').writeFileSync('node_modules/pkg/package.json', JSON.stringify({name: 'pkg', type: 'module', exports: {import: './i.js'}})); require('fs').writeFileSync('node_modules/pkg/i.js', 'export default 5; export const six = 6'); require('fs').writeFileSync('m.mjs', 'export const seven = 7'); require('fs').writeFileSync('c.js', 'module.exports = {eight: 8}')"},
			{code: "import five, { six } from 'pkg'; import { seven } from './m.mjs'; import c from './c.js'; [five, six, seven, c.eight, require('./c').eight]", text: "[ 5, 6, 7, 8, 8 ]", json: "[5,6,7,8,8]"},
			{code: "const load = () => import('pkg'); (await load()).six", text: "6"},
			{code: "import 'nonesuch'", err: "Error: Cannot find package 'nonesuch'", exit: 1},
		},
		"export":         {{code: "export const a = 1; export default class Z {}\nexport function f() { return 2 }"}, {code: "[a, typeof Z, f()]", text: "[ 1, 'function', 2 ]", json: `[1,"function",2]`}},
		"main idiom":     {{code: "if (require.main === module) console.log('main', __dirname === process.cwd())", stdout: "main true\n"}},
		"import.meta":    {{code: "import.meta.url.startsWith('file:///')", text: "true"}},
		"error":          {{code: "function f() {\n  throw new RangeError('bad')\n}\nf()", err: "RangeError: bad", trace: "at f (<cell 1>:2:9)\n    at <cell 1>:4:1", exit: 1}, {code: "1", text: "1"}},
		"error columns":  {{code: "const {a} = {a: null}; let b = 1; a.b; await 1", err: "TypeError: Cannot read properties of null (reading 'b')", trace: "<cell 1>:1:37", exit: 1}, {code: "await 1; null.f()", err: "TypeError: Cannot read properties of null (reading 'f')", trace: "<cell 2>:1:15", exit: 1}},
		"error as value": {{code: "new Error('shown')", text: "Error: shown\n    at <cell 1>:1:1"}},
		"shapes": {
			{code: "class A {}\nclass B extends A { static x = 1; #p = 2; get p() { return this.#p } }\nnew B().p", text: "2"},
			{code: "const two = await (async () => 5)(), [u, v] = await Promise.all([1, 2])\nu + v + two", text: "8"},
			{code: "if (1) { await 0; function inner() { return 9 } }\nswitch (await 1) { case 1: var sw = 'one' }\nsw", text: "'one'"},
			{code: "let {a: {b: deep}} = {a: {b: 7}}, other = await deep; other", text: "7"},
			{code: "function g2() { return this === globalThis }\nawait 1; g2()", text: "true"},
			{code: "(await 1) + 1", text: "2"},
			{code: "await 3, 4", text: "4"},
			{code: "`${await 1}`", text: "'1'"},
		},
		"thrown string":  {{code: "throw 'oops'", err: "Error: oops", trace: "Uncaught 'oops'", exit: 1}},
		"reference":      {{code: "nope", err: "ReferenceError: nope is not defined", trace: "<cell 1>:1:1", exit: 1}},
		"syntax":         {{code: "let ok = 1\nlet x = ;\n", err: "SyntaxError: Unexpected token ';'", trace: "<cell 1>:2:9\nlet x = ;\n        ^\n", exit: 1}, {code: "foo(", err: "SyntaxError: Unexpected token", exit: 1}, {code: "ok", err: "ReferenceError: ok is not defined", exit: 1}},
		"uncaught later": {{code: "setTimeout(() => { throw new Error('late') }, 5); await new Promise(r => setTimeout(r, 500))", err: "Error: late", exit: 1}, {code: "1", text: "1"}},
		"rejection":      {{code: "Promise.reject(new Error('r')); 0", err: "Error: r", text: "0", exit: 1}},
		"between cells":  {{code: "let ticked; const t = setInterval(() => { if (ticked) { console.log('tick'); clearInterval(t); ticked() } }, 5); 0", text: "0"}, {code: "await new Promise(r => { ticked = r })", stdout: "tick\n"}},
		"drain":          {{code: "setTimeout(() => console.log('tick'), 30); console.log('a')", drain: true, stdout: "a\ntick\n"}, {code: "setTimeout(() => { throw new Error('late') }, 5)", drain: true, err: "Error: late", exit: 1}, {code: "3", drain: true, text: "3"}},
		"never settles":  {{code: "await new Promise(() => {})", err: "Error: the code waits for a promise that nothing can settle any more", exit: 1}, {code: "1", text: "1"}},
		"stdin":          {{code: "const rl = require('readline/promises').createInterface({input: process.stdin}); await rl.question('?')", err: "Error: the code waits for a promise that nothing can settle any more", exit: 1}, {code: "require('fs').readFileSync(0, 'utf8')", text: "''"}},
		"exit code":      {{code: "process.exitCode = 4", text: "4", exit: 4}, {code: "1", text: "1"}},
		"children":       {{code: "console.log('a'); require('child_process').spawnSync('sh', ['-c', 'echo b; ls -l /proc/self/fd | grep -c socket; echo e >&2'], {stdio: 'inherit'}); console.log('c')", stdout: "a\nb\n0\nc\n", stderr: "e\n"}},
		"big output":     {{code: "console.log('x'.repeat(1 << 20)); process.stdout.write('y'); 0", stdout: strings.Repeat("x", 1<<20) + "\ny", text: "0"}},
		"env":            {{code: "process.env.A = 'old'" + "; 0", text: "0"}, {code: "process.env.A + process.env.B", env: map[string]string{"A": "1", "B": "2"}, text: "'12'"}, {code: "process.env.A + process.env.B", text: "'oldundefined'"}},
		"cwd":            {{code: "process.cwd()", cwd: "/usr", text: "'/usr'"}, {code: "process.cwd() == process.env.HOME", text: "true"}, {code: "1", cwd: "/nonesuch", err: "Error: ENOENT: no such file or directory", exit: 1}},
		"surrogates":     {{code: "'\\ud800'", text: "'\\ud800'"}, {code: "['\\ud800'][0] + 'é🎉'", text: "'\\ud800é🎉'"}, {code: "console.log('é🎉')", stdout: "é🎉\n"}},
		"hash bang":      {{code: "#!/usr/bin/env node\nconsole.log(1)", stdout: "1\n"}, {code: "#!/usr/bin/env node\nconsole.log(await 1)", stdout: "1\n"}},
		"strict":         {{code: "'use strict'; const s = 1; s", text: "1"}},
		"template":       {{code: "const n = 1; `a\n${n}\nb`", text: "'a\\n1\\nb'"}},
		"closures":       {{code: "let n = 0; const inc = () => ++n; inc(); inc()", text: "2"}, {code: "n", text: "2"}, {code: "const fs2 = []; for (let i = 0; i < 2; i++) fs2.push(() => i); fs2.map(f => f())", text: "[ 0, 1 ]", json: "[0,1]"}},
		"rich":           {{code: "({_toHtml: () => '<b>x</b>'})", text: "{ _toHtml: [Function: _toHtml] }"}},
		"proxies":        {{code: "new Proxy({}, {get() { throw 1 }})", text: "{}"}},
		"hostile":        {{code: "({get [Symbol.toStringTag]() { throw new Error('x') }, toJSON() { throw 1 }})", err: "Error: x", exit: 1}, {code: "const e = new Error('m'); Object.defineProperty(e, 'stack', {get() { throw 1 }}); throw e", err: "Error: m", exit: 1}, {code: "1", text: "1"}},
		"typescript": {
			{ts: true, code: "interface P { x: number }\n\nenum Color { Red, Green = 5 }\nconst p: P = { x: 1 };\np.x + Color.Green", text: "6"},
			{ts: true, code: "// a\n\n\ntype T = string;\nfunction f(a?: any): number {\n  return a.b.c;\n}\n\nf({} as any)", err: "TypeError: Cannot read properties of undefined (reading 'c')", trace: "<cell 2>:6:14", exit: 1},
			{ts: true, code: "import { join } from 'path'; import type { X } from './x'"},
			{ts: true, code: "join('a', `${Color.Red}`) as string", text: "'a/0'"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := startNode(t)
			for i, c := range cells {
				code := c.code
				if c.ts {
					js, bad := transform.StripTypes(code)
					if bad != nil {
						t.Fatal(bad)
					}
					code = js
				}
				got := k.execute(kernel.Request{Code: code, Env: c.env, Cwd: c.cwd, Drain: c.drain})
				bad := got.Exited || got.ExitCode != c.exit || got.Stdout != c.stdout || got.Text() != c.text
				bad = bad || !strings.HasPrefix(got.Err(), c.err) || c.err == "" && got.Err() != ""
				bad = bad || !strings.Contains(got.Stderr, c.stderr) || c.stderr == "" && got.Stderr != ""
				if c.err != "" && len(got.Errors) > 0 {
					tb := got.Errors[0].Traceback
					bad = bad || !strings.Contains(tb, c.trace) || strings.Contains(tb, "node.cjs") || strings.Contains(tb, "Socket.emit") || strings.Contains(tb, "\x1b")
				}
				if c.text != "" && len(got.Results) > 0 {
					bad = bad || c.json != "" && string(got.Results[0].Data["application/json"]) != c.json
				}
				if bad {
					if len(got.Stdout) > 1000 {
						got.Stdout = got.Stdout[:1000]
					}
					t.Errorf("cell %d %q:\n got %+v\nwant %+v", i+1, c.code, got, c)
				}
			}
		})
	}
}

func TestNodeDisplay(t *testing.T) {
	k := startNode(t)
	got := k.run("display({'text/html': '<i>'}); display([1]); display.svg('<svg/>'); ({_toPng: Buffer.from('p'), [Symbol.for('Jupyter.display')]: async () => ({'text/markdown': '*m*'})})")
	var b strings.Builder
	for _, r := range got.Results {
		for _, m := range []string{"text/html", "image/svg+xml", "image/png", "text/markdown"} {
			if r.Data[m] != nil {
				b.WriteString(m + "=" + formOf(r, m).(string) + " ")
			}
		}
	}
	if want := "text/html=<i> image/svg+xml=<svg/> image/png=cA== text/markdown=*m* "; b.String() != want || len(got.Results) != 4 {
		t.Errorf("got %s, %+v", b.String(), got)
	}
}

// A display waits for the guest's answer, so that what is printed next stays behind.
func TestNodeDisplayIsTaken(t *testing.T) {
	k := startNode(t)
	k.acks = true
	for range 2 {
		got := k.run("for (let i = 0; i < 20; i++) display(i); await 1; display('x'); setTimeout(() => display('y'), 5); await new Promise(r => setTimeout(r, 50)); console.log('z')")
		if len(got.Results) != 22 || got.Stdout != "z\n" || got.ExitCode != 0 {
			t.Fatalf("got %+v", got)
		}
	}
}

// Code that waits says so from the event loop: a SIGINT that comes when synchronous
// code is just ending can be lost or worse in Node.
func TestNodeInterrupt(t *testing.T) {
	for name, code := range map[string]string{
		"loop":       "s = 1; console.log('go'); while (true) {}",
		"async loop": "s = 1; await 1; console.log('go'); while (true) {}",
		"waiting":    "s = 1; setTimeout(() => console.log('go'), 1); await new Promise(r => setTimeout(r, 1e6))",
		"child":      "s = 1; setTimeout(() => console.log('go'), 1); await new Promise(r => require('child_process').spawn('sleep', ['100']).on('exit', () => 0))",
		"function":   "s = 1; function f() { for (;;) { try { g() } catch (e) {} } } function g() { throw 1 }; console.log('go'); f()",
		"server":     "s = 1; require('net').createServer().listen(0, () => setTimeout(() => console.log('go'), 1)); await new Promise(() => {})",
		"promise":    "s = 1; setTimeout(() => console.log('go'), 1); new Promise(r => setTimeout(r, 1e6))",
		"shadowed":   "s = 1; let process = 1; console.log('go'); while (true) {}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := startNode(t)
			k.start(kernel.Request{Code: code})
			for k.takeStdout() != "go\n" {
				time.Sleep(5 * time.Millisecond)
			}
			time.Sleep(10 * time.Millisecond)
			k.interruptNode()
			if got := k.finish(); got.Exited || got.ExitCode != 1 || got.Err() != "Interrupted: execution interrupted" {
				t.Errorf("interrupted: %+v", got)
			}
			k.interrupt() // nothing runs: no effect
			k.send(kernel.Request{Op: kernel.OpInterrupt, ID: k.nextID})
			if got := k.run("s"); got.Text() != "1" || got.ExitCode != 0 {
				t.Errorf("afterwards: %+v", got)
			}
		})
	}
}

func TestNodeGone(t *testing.T) {
	for code, want := range map[string]int{
		"process.exit(3)":                      3,
		"process.exit()":                       0,
		"await 1; process.exit(4)":             4,
		"process.kill(process.pid, 'SIGKILL')": -1,
	} {
		k := startNode(t)
		if got := k.run("process.stdout.write('a'); " + code); !got.Exited || got.ExitCode != want || got.Stdout != "a" {
			t.Errorf("%s: got %+v, want %d", code, got, want)
		}
	}
}

func TestNodeBigCell(t *testing.T) {
	k := startNode(t)
	got := k.run("const s = '" + strings.Repeat("x", 16<<20) + "'; s.length")
	if got.Text() != "16777216" {
		t.Fatalf("got %+v", got)
	}
	if got := k.run("s.repeat(3)"); len(got.Text()) > 32<<20 || len(got.Text()) < 1<<20 {
		t.Fatalf("%d bytes of text", len(got.Text()))
	}
}

// The relative import follows the folder of the call.
func TestNodeImportFollowsCwd(t *testing.T) {
	k := startNode(t)
	sub := filepath.Join(k.home, "sub")
	_ = os.Mkdir(sub, 0o755)
	_ = os.WriteFile(filepath.Join(sub, "m.mjs"), []byte("export const where = 'sub'"), 0o644)
	got := k.execute(kernel.Request{Code: "import { where } from './m.mjs'; where", Cwd: sub})
	if got.Text() != "'sub'" {
		t.Errorf("got %+v", got)
	}
}

func BenchmarkNode(b *testing.B) {
	k := startNode(b)
	for b.Loop() {
		k.run("1")
	}
}
