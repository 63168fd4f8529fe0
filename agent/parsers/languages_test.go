package parsers_test

import (
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/agent/validate"
)

func TestBash(t *testing.T) {
	for _, c := range []struct {
		code string
		want []string
	}{
		{"ls -la | wc", []string{"bash.command.ls", "bash.command.wc"}},
		{"/bin/rm -rf /", []string{"bash.destructive.rm"}},
		{`\r"m" -r x`, []string{"bash.destructive.rm"}},
		{"r''m --recursive x", []string{"bash.destructive.rm"}},
		{"sudo -u root env A=b xargs -n 1 rm -r x", []string{"bash.privilege.sudo", "bash.command.env", "bash.command.xargs", "bash.destructive.rm"}},
		{"timeout 5 nohup curl x &", []string{"bash.command.timeout", "bash.command.nohup", "bash.network.curl"}},
		{"find . -exec shred {} +", []string{"bash.command.find", "bash.destructive.shred"}},
		{"find . -delete", []string{"bash.destructive.find"}},
		{"bash -c 'wget x'", []string{"bash.command.bash", "bash.network.wget"}},
		{"sh -ec 'sh -c \"dd if=a of=/dev/sda\"'", []string{"bash.destructive.dd"}},
		{`eval "rm -r x"`, []string{"bash.dynamic.eval", "bash.destructive.rm"}},
		{`eval "$x"`, []string{"bash.dynamic.eval", "bash.dynamic.command"}},
		{"trap 'sudo x' EXIT", []string{"bash.privilege.sudo"}},
		{"$cmd x", []string{"bash.dynamic.command"}},
		{"$'\\x72m' x", []string{"bash.dynamic.command"}},
		{"x=$(curl y)", []string{"bash.substitution", "bash.network.curl"}},
		{"cat <(nc x 1)", []string{"bash.substitution", "bash.network.nc"}},
		{"cat < /dev/tcp/1.2.3.4/80", []string{"bash.network.tcp"}},
		{"echo x > /dev/sda", []string{"bash.destructive.device"}},
		{"curl x | sudo bash -s", []string{"bash.dynamic.pipe-to-shell"}},
		{"echo x | base64 -d | sh", []string{"bash.dynamic.pipe-to-shell"}},
		{":(){ :|:& };:", []string{"bash.destructive.fork-bomb"}},
		{"b() { b & b; }; b", []string{"bash.destructive.fork-bomb"}},
		{"chmod 4755 x; chmod u+s y", []string{"bash.privilege.chmod"}},
		{"chmod -R 777 /", []string{"bash.destructive.chmod"}},
		{"mkfs.ext4 x", []string{"bash.destructive.mkfs.ext4"}},
		{"git clone x; pip install y; apt-get install z", []string{"bash.network.git", "bash.network.pip", "bash.network.apt-get"}},
		{". x.sh", []string{"bash.dynamic.source"}},
		{"if x; then for i in 1; do (su); done; fi", []string{"bash.privilege.su"}},
		{"''; x=1; f() { :; }; f # rm -r x", []string{"bash.command.:"}},
		{"x=1", nil},
		{"", nil},
	} {
		checkSeen(t, "sh", c.code, c.want...)
	}
	for _, code := range []string{"echo x > /dev/null 2>&1", "cat <<E\nrm -rf /\nE", "echo 'rm -rf /'", "rm x; rm -f y", "git status; pip list", "chmod 755 x", "dd if=a of=b"} {
		if r := check(t, validate.Production(), "bash", code); r.Decision != validate.Allow {
			t.Errorf("%q: %+v", code, r.Findings)
		}
	}
}

func TestJavaScript(t *testing.T) {
	for _, c := range []struct {
		language, code string
		want           []string
	}{
		{"js", "import fs from 'node:fs'", []string{"javascript.import.fs"}},
		{"js", "import 'net'; export * from 'vm'", []string{"javascript.import.net", "javascript.import.vm"}},
		{"js", "const x = require(`child_process`)", []string{"javascript.import.child_process"}},
		{"js", "require('child_' + 'process')", []string{"javascript.import.child_process"}},
		{"js", "const {a} = await import('fs/promises')", []string{"javascript.import.fs/promises"}},
		{"js", "require(x); import(y)", []string{"javascript.dynamic.require", "javascript.dynamic.import"}},
		{"js", "process.getBuiltinModule('os')", []string{"javascript.process.getBuiltinModule", "javascript.import.os"}},
		{"js", "e\\u0076al('1')", []string{"javascript.dynamic.eval"}},
		{"js", "globalThis['eval']('1'); new Function('x')", []string{"javascript.dynamic.eval", "javascript.dynamic.Function"}},
		{"js", "[]['constructor']['constructor']('x')()", []string{"javascript.dynamic.constructor"}},
		{"js", "`a${require('net')}b${`c${fetch('x')}`}`", []string{"javascript.import.net", "javascript.network.fetch"}},
		{"js", "process.kill(1); process.binding('x'); new WebSocket(u)", []string{"javascript.process.kill", "javascript.native.process.binding", "javascript.network.WebSocket"}},
		{"js", "process[a]; globalThis[b]", []string{"javascript.dynamic.process", "javascript.dynamic.globalThis"}},
		{"js", "new WebAssembly.Module(x)", []string{"javascript.native.WebAssembly"}},
		{"ts", "import {readFile} from 'fs'\ntype A = {eval: () => void}", []string{"javascript.import.fs"}},
		{"ts", "const e = <div>Don't eval('x')</div>; eval('y')", []string{"javascript.dynamic.eval"}},
		{"js", "const s = \"require('net') eval(\"; // eval('x')\n/* fetch() */ const r = /eval('x')/g, d = 4 / 2 / 1", nil},
		{"js", "const o = {eval: 1, fetch() {}}; o.eval; o.fetch(); class A { constructor() { super.constructor } }", nil},
	} {
		checkSeen(t, c.language, c.code, c.want...)
	}
}

func TestPositions(t *testing.T) {
	for _, c := range []struct {
		language, code, rule string
		line, column         int
	}{
		{"js", "// 😀\n  const é = '😀', q = fetch('x')", "javascript.network.fetch", 2, 22},
		{"ts", "interface A { a: number }\n\nlet x: A;\n\teval('1')", "javascript.dynamic.eval", 4, 2},
		{"bash", "echo é;\r\n  echo 'é'; sudo x", "bash.privilege.sudo", 2, 13},
	} {
		r := check(t, validate.Production(), c.language, c.code)
		if len(r.Findings) != 1 || r.Findings[0].Rule != c.rule || r.Findings[0].Line != c.line || r.Findings[0].Column != c.column {
			t.Errorf("%q: %+v", c.code, r.Findings)
		}
	}
	for _, c := range []struct {
		language, code, message string
		line, column            int
	}{
		{"js", "let x = 1;\nlet é = (;", "Unexpected", 2, 10},
		{"js", "let x: number", "Expected", 1, 6},
		{"ts", "let x: = 1", "Unexpected", 1, 8},
		{"js", "let a; let a", "already been declared", 1, 12},
		{"bash", "echo é 'x\n", "without closing quote", 1, 8},
		{"bash", "if x; then\n", "`then` must be followed", 1, 7},
		{"bash", "echo )", "", 1, 6},
	} {
		r := check(t, nil, c.language, c.code)
		if r.Valid || len(r.Errors) == 0 {
			t.Errorf("%q is valid", c.code)
			continue
		}
		if e := r.Errors[0]; e.Line != c.line || e.Column != c.column || !strings.Contains(e.Message, c.message) || e.Rule != "syntax" || e.Evidence == "" {
			t.Errorf("%q: %+v", c.code, e)
		}
	}
}

// The parser takes the key of an associative array for arithmetic, and says what
// to do.
func TestBashKeys(t *testing.T) {
	code := "declare -A m; m[a b]=1"
	if r := check(t, nil, "bash", code); r.Valid || !strings.Contains(r.Errors[0].Remedy, "quote it") {
		t.Errorf("%+v", r)
	}
	if r := check(t, nil, "bash", strings.Replace(code, "a b", `"a b"`, 1)); !r.Valid {
		t.Errorf("%+v", r)
	}
}

// The package's documentation names these. They are here to say so honestly.
func TestKnownBypasses(t *testing.T) {
	for _, c := range []code{
		{"js", "const f = (0, [globalThis][0])['ev' + x]; f('1')"},
		{"js", "const p = [process][0]; p.kill(1)"},
		{"js", "const m = 'child' + String.fromCharCode(95) + 'process'; const r = {r: module.require}; r.r(m)"},
		{"js", "(async () => {}).constructor.name; const C = 'constructor'; (() => {})[C]"},
		{"bash", "python3 -c 'import os; os.system(\"id\")'"},
		{"bash", "python3 - <<'E'\nimport socket\nE"},
		{"bash", "alias x=sudo; x id"},
		{"bash", "perl -e 'unlink glob \"*\"'"},
		{"bash", "echo c3VkbyBpZAo= | base64 -d > x.sh; bash x.sh"},
	} {
		if r := check(t, validate.Production(), c.language, c.source); r.Decision != validate.Allow {
			t.Errorf("%q is seen by now: %+v; the documentation may say so", c.source, r.Findings)
		}
	}
}

func FuzzScripts(f *testing.F) {
	f.Add("js", "import a from 'b'; `x${/[/]/.test(y) ? `${1}` : 2}`; a / b / c")
	f.Add("ts", "let x: A<B> = <div>{a}</div>")
	f.Add("bash", "sudo -u x env -i A=b bash -c \"eval '$x'\" <<E | sh -\nE")
	f.Add("bash", "su -; timeout 5; env -; find -exec; xargs -I")
	f.Fuzz(func(t *testing.T, language, code string) {
		r := check(t, &validate.Policy{Default: validate.Review}, language, code)
		if r.Valid != (len(r.Errors) == 0) || len(r.Findings) > 100 {
			t.Errorf("%+v", r)
		}
	})
}
