package kernel_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
)

func startBash(t testing.TB) *wireKernel {
	t.Helper()
	shell, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	return wireStart(t, kernel.Bash(shell, wireScripts(t)))
}

// TestBash runs cells one after the other in one kernel per case.
func TestBash(t *testing.T) {
	type cell struct {
		code           string
		env            map[string]string
		cwd            string
		stdout, stderr string // exact; stderr is a substring
		exit           int
	}
	for name, cells := range map[string][]cell{
		"hello":              {{code: "echo hello", stdout: "hello\n"}},
		"status":             {{code: "echo a; false", stdout: "a\n", exit: 1}, {code: "true"}},
		"empty":              {{code: ""}, {code: "\n\n"}, {code: "# only a comment"}},
		"state":              {{code: "x=1; f() { echo f$x; }; cd /; export E=2; a=(1 2); declare -A m=([k]=v)"}, {code: "f; pwd; env | grep ^E=; echo ${a[1]} ${m[k]}", stdout: "f1\n/\nE=2\n2 v\n"}},
		"aliases":            {{code: "alias hi='echo hi'"}, {code: "hi", stdout: "hi\n"}},
		"errexit":            {{code: "set -e; y=1; false; echo no", exit: 1}, {code: "false; echo $y", stdout: "1\n"}},
		"errexit leaves":     {{code: "set -eu; echo ok", stdout: "ok\n"}, {code: "false; echo still $nothing", stdout: "still\n"}},
		"options":            {{code: "set -xf; shopt -s nullglob; : a", stderr: "+ : a\n"}, {code: "shopt -q nullglob; echo $? $-", stdout: "1 hBc\n"}},
		"pipefail":           {{code: "set -o pipefail"}, {code: "false | true"}},
		"exit":               {{code: "v='a b'; arr=(x 'y z'); exit 3; echo no", exit: 3}, {code: `echo "$v" "${arr[1]}" $?`, stdout: "a b y z 0\n"}},
		"exit in function":   {{code: "g=1 h=1; f() { local h=2 PATH=/none; g=3; e; }; e() { local h=3; exit 4; }; f", exit: 4}, {code: "echo $g $h; type -t f; date >/dev/null", stdout: "3 1\nfunction\n"}},
		"exit in subshell":   {{code: "(exit 5); echo $?", stdout: "5\n"}},
		"exit twice":         {{code: "n=1; exit 1", exit: 1}, {code: "n=$((n+1)); exit 2", exit: 2}, {code: "n=$((n+1)); exit 3", exit: 3}, {code: "echo $n", stdout: "3\n"}},
		"exit keeps":         {{code: "cd /tmp; umask 027; exec 5</dev/zero; export E='q\"$x'; readonly R=1; declare -i I=4; set -- p 'q r'; alias ll='echo al'; sleep 100 & exit 1", exit: 1}, {code: "pwd; umask; head -c1 <&5 | wc -c; env | grep ^E=; I=I+1; echo $I $R $2; ll; kill %1 2>/dev/null || echo no jobs", stdout: "/tmp\n0027\n1\nE=q\"$x\n5 1 q r\nal\nno jobs\n"}},
		"expansion error":    {{code: "w=1; echo ${zz?not there}; echo no", exit: 127, stderr: "zz: not there"}, {code: "echo $w", stdout: "1\n"}},
		"nounset":            {{code: "set -u; w=1; echo $zz", exit: 127, stderr: "zz: unbound variable"}, {code: "echo $w", stdout: "1\n"}},
		"division":           {{code: "echo a; echo $((1/0))\necho b", stdout: "a\nb\n", stderr: "division by 0"}},
		"syntax":             {{code: "echo a\nif then", stdout: "a\n", stderr: "syntax error near unexpected token `then'", exit: 2}, {code: "echo b", stdout: "b\n"}},
		"unfinished":         {{code: "echo 'a", stderr: "unexpected EOF while looking for matching", exit: 2}},
		"not found":          {{code: "\nnonesuch", stderr: "bash: line 2: nonesuch: command not found\n", exit: 127}},
		"redirect undone":    {{code: "exec >/dev/null 2>&1; echo lost"}, {code: "echo seen; echo err >&2", stdout: "seen\n", stderr: "err\n"}},
		"redirect and exit":  {{code: "exec >/dev/null; exit 2", exit: 2}, {code: "echo seen", stdout: "seen\n"}},
		"stdin":              {{code: "cat; read x; echo $?", stdout: "1\n"}},
		"break":              {{code: "q=1; break; echo on", stdout: "", exit: 0}, {code: "echo $q", stdout: "1\n"}},
		"break far":          {{code: "q=1; break 9", exit: 0}, {code: "echo $q", stdout: "1\n"}, {code: "exit 7", exit: 7}, {code: "echo $q", stdout: "1\n"}},
		"exit trap":          {{code: "trap 'echo bye $x' EXIT; x=1; echo hi", stdout: "hi\nbye 1\n"}, {code: "echo next", stdout: "next\n"}},
		"exit trap and exit": {{code: "trap 'echo bye' EXIT; z=1; exit 6", stdout: "bye\n", exit: 6}, {code: "echo $z; trap", stdout: "1\n"}},
		"trap in subshell":   {{code: "(trap 'echo sub' EXIT; true)", stdout: "sub\n"}},
		"debug trap":         {{code: "trap 'echo D' DEBUG; :", stdout: "D\n"}, {code: ":"}},
		"err trap":           {{code: "trap 'echo E' ERR; false", stdout: "E\n", exit: 1}, {code: "false", exit: 1}},
		"return trap":        {{code: "f() { trap 'echo R' RETURN; echo in; }; f", stdout: "in\nR\n"}},
		"trap status":        {{code: "trap 'x' NOSUCH; echo $?", stdout: "1\n", stderr: "NOSUCH: invalid signal"}},
		"signal trap":        {{code: "trap 'echo U' USR1; kill -USR1 $$", stdout: "U\n"}},
		"per-call env":       {{code: "export A=old; B=plain"}, {code: `echo $A $B "$C"; env | grep -c '^[ABC]='`, env: map[string]string{"A": "1", "B": "2", "C": "x'y\nz", "no-name": "q"}, stdout: "1 2 x'y\nz\n3\n", stderr: "cannot hold"}, {code: "echo $A $B [$C]; env | grep '^[ABC]='", stdout: "old plain []\nA=old\n"}},
		"env and exit":       {{code: "exit 1", env: map[string]string{"A": "1"}, exit: 1}, {code: "echo [$A]", stdout: "[]\n"}},
		"per-call cwd":       {{code: "cd /usr"}, {code: "pwd; cd /", cwd: "/tmp", stdout: "/tmp\n"}, {code: "pwd", stdout: "/usr\n"}},
		"bad cwd":            {{code: "echo no", cwd: "/nonesuch", exit: 1, stderr: "/nonesuch: No such file"}, {code: "echo y", stdout: "y\n"}},
		"background":         {{code: "sleep 100 & echo $((!$! ))", stdout: "0\n"}, {code: "kill %1; wait %1 2>/dev/null; echo $?", stdout: "143\n"}},
		"kill": {
			{code: "set -eu; (sleep 100) & kill $!; wait $! || echo $?; kill -l 9; trap 'echo U' USR1; kill -USR1 $$; kill -0 $$", stdout: "143\nKILL\nU\n"},
			{code: "set -eu; kill -0 99999999 || echo none", stdout: "none\n", stderr: "No such process"},
			{code: `IFS=,; sleep 100 & kill %1; echo "$IFS"; kill() { echo mine; }; exit 1`, stdout: ",\n", exit: 1},
			{code: "kill", stdout: "mine\n"},
		},
		"kill at once":      {{code: "for i in {1..300}; do sleep 50 & kill %%; wait $! 2>/dev/null; [ $? = 143 ] || echo lost; done"}},
		"job control quiet": {{code: "sleep 0.01 & sleep 0.05"}, {code: "sleep 0.01"}},
		"our descriptors":   {{code: "exec 251>&-; ls /proc/self/fd | wc -l; (ls /proc/self/fd | wc -l) &\nwait", stdout: "4\n4\n"}},
		"our functions":     {{code: "env | grep -c __cubby; echo $0 $#", stdout: "0\nbash 0\n"}},
		"heredoc":           {{code: "cat <<E\na $((1+1))\nE\n", stdout: "a 2\n"}},
		"unicode":           {{code: "echo 'é世🎉'; x=é; echo ${#x}", stdout: "é世🎉\n1\n"}},
		"odd variables":     {{code: "IFS=,; TMOUT=1; CDPATH=/usr"}, {code: "a='1,2'; printf '%s;' $a; exit 2", stdout: "1;2;", exit: 2}, {code: "a='1,2'; printf '%s;' $a", stdout: "1;2;"}},
		"overridden":        {{code: "cd() { echo mine; }; printf() { :; }; read() { :; }"}, {code: "cd /; exit 1", stdout: "mine\n", exit: 1}, {code: "cd /", stdout: "mine\n"}},
		"backslashes":       {{code: `echo '\n\\' "\x41"; x=$'a\tb\x01'; exit 1`, stdout: `\n\\ \x41` + "\n", exit: 1}, {code: `echo "${x@Q}"`, stdout: `$'a\tb\001'` + "\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := startBash(t)
			for i, c := range cells {
				got := k.execute(kernel.Request{Code: c.code, Env: c.env, Cwd: c.cwd})
				if got.Exited || got.ExitCode != c.exit || got.Stdout != c.stdout ||
					!strings.Contains(got.Stderr, c.stderr) || c.stderr == "" && got.Stderr != "" {
					t.Errorf("cell %d %q:\n got %+v\nwant %q %q %d", i, c.code, got, c.stdout, c.stderr, c.exit)
				}
				if len(got.Results)+len(got.Errors) > 0 {
					t.Errorf("cell %d: bash has neither results nor errors: %+v", i, got)
				}
			}
		})
	}
}

// A cell of many megabytes on one line goes neither through an argument nor
// through a terminal.
func TestBashBigCell(t *testing.T) {
	k := startBash(t)
	got := k.run("printf %s '" + strings.Repeat("x", 16<<20) + "' | wc -c; x=1")
	if got.Stdout != fmt.Sprintln(16<<20) || got.ExitCode != 0 {
		t.Fatalf("got %+v", got)
	}
}

func TestBashInterrupt(t *testing.T) {
	for name, code := range map[string]string{
		"child":       "s=1; echo go; sleep 100; echo no",
		"builtins":    "s=1; echo go; while :; do :; done",
		"loop":        "s=1; echo go; while :; do sleep 0.1; done",
		"subshell":    "s=1; echo go; (while :; do :; done)",
		"function":    "s=1; f() { echo go; sleep 100; }; f",
		"wait":        "s=1; echo go; sleep 100 & wait",
		"own handler": "s=1; trap 'exit 130' INT; echo go; sleep 100",
		"pipeline":    "s=1; echo go; sleep 100 | cat",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := startBash(t)
			k.start(kernel.Request{Code: code})
			for k.takeStdout() != "go\n" {
				time.Sleep(5 * time.Millisecond)
			}
			k.interrupt()
			begun := time.Now()
			if got := k.finish(); got.Exited || got.ExitCode != 130 || got.Stdout != "" {
				t.Errorf("interrupted: %+v", got)
			}
			if d := time.Since(begun); d > time.Minute { // of 100 s
				t.Errorf("took %v", d)
			}
			// Nothing runs: no effect. On a busy machine the signal may come only
			// after the request, and is for that cell then.
			for patience := 20 * time.Millisecond; ; patience *= 2 {
				k.interrupt()
				time.Sleep(patience)
				got := k.run("echo $s")
				if got.ExitCode == 130 && patience < 5*time.Second {
					continue
				}
				if got.Stdout != "1\n" || got.ExitCode != 0 {
					t.Errorf("afterwards: %+v", got)
				}
				break
			}
		})
	}
}

// What cannot be survived ends the kernel with the shell's own status.
func TestBashGone(t *testing.T) {
	for code, want := range map[string]int{
		"exec true":                     0,
		"exec sh -c 'exit 9'":           9,
		"kill -9 $$":                    -1,
		"builtin trap - EXIT; exit 5":   5,
		"command trap 'true' 0; exit 6": 6,
	} {
		k := startBash(t)
		if got := k.run(code); !got.Exited || got.ExitCode != want {
			t.Errorf("%s: got %+v, want %d", code, got, want)
		}
	}
}

func BenchmarkBash(b *testing.B) {
	k := startBash(b)
	for b.Loop() {
		k.run("true")
	}
}
