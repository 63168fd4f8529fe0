package kernel_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
)

// drew waits for a kernel to say that it has drawn anew, which it says of no request.
func (k *wireKernel) drew() {
	k.t.Helper()
	if e, err := k.read(); err != nil || e.Ev != "anew" || e.ID != 0 {
		k.t.Fatalf("%+v, %v; stderr %s", e, err, k.takeStderr())
	}
}

// touch makes a file in the kernel's folder.
func (k *wireKernel) touch(name string) {
	k.t.Helper()
	if err := os.WriteFile(filepath.Join(k.home, name), nil, 0o600); err != nil {
		k.t.Fatal(err)
	}
}

// TestPythonDrawsAnew has a kernel told that it is a copy at bad moments. What copies
// draw then is compared by the engine's TestCopiesDrawDifferentNumbers.
func TestPythonDrawsAnew(t *testing.T) {
	k := startPython(t)
	ask := func() {
		t.Helper()
		if err := k.cmd.Process.Signal(kernel.SignalAnew); err != nil {
			t.Fatal(err)
		}
	}
	seeded := func(want string) {
		t.Helper()
		if c := k.run("print(random.random() == random.Random(7).random())"); c.Stdout != want+"\n" {
			t.Errorf("%+v", c)
		}
	}
	const seed = "import random; random.seed(7)"
	k.run(seed)
	seeded("True")
	k.run(seed)
	ask() // it waits for a cell
	k.drew()
	seeded("False")
	k.run(seed)
	k.start(kernel.Request{Code: "import time, os; random.seed(7); print('seeded', flush=True)\nwhile not os.path.exists('drawn'): time.sleep(.01)"})
	for k.takeStdout() == "" {
		time.Sleep(time.Millisecond)
	}
	ask()
	k.drew()
	k.touch("drawn")
	if c := k.finish(); c.Err() != "" || c.Stderr != "" {
		t.Errorf("the cell that ran: %+v", c)
	}
	seeded("False")
	k.run(seed)
	if c := k.execute(kernel.Request{Anew: true, Code: "print(random.random() == random.Random(7).random())"}); c.Stdout != "False\n" {
		t.Errorf("%+v", c)
	}
	// Code that replaced what is drawn from, or takes the signal for itself, has its way.
	k.run("import tempfile, uuid; random._inst = 1; uuid = tempfile = None")
	ask()
	k.drew()
	k.run("import signal, os; got = []; signal.signal(signal.SIGURG, lambda *a: got.append(1))")
	ask()
	if c := k.run("while not got: pass\nprint(got)"); c.Stdout != "[1]\n" {
		t.Errorf("%+v", c)
	}
}

// TestPythonDrawsAnewAroundNumpy: numpy's generator has a lock, which what the signal
// interrupts may hold, and may be another than it came with.
func TestPythonDrawsAnewAroundNumpy(t *testing.T) {
	k := startPython(t)
	if c := k.run("import numpy"); c.Err() != "" {
		t.Skip(c.Err())
	}
	c := k.run(`
import os, signal
class Locked(list):
    def __getitem__(self, i):
        os.kill(os.getpid(), signal.SIGURG)
        return list.__getitem__(self, i)
numpy.random.seed(7)
numpy.random.shuffle(Locked([1, 2, 3]))
numpy.random.seed(7)
print(numpy.random.rand() == numpy.random.RandomState(7).rand())`)
	if c.Stdout != "True\n" || c.Err() != "" {
		t.Errorf("%+v", c)
	}
	const own = "g = numpy.random.PCG64(7); numpy.random.set_bit_generator(g)"
	if c := k.run(own); c.Err() != "" {
		t.Skip(c.Err()) // numpy before 1.24
	}
	c = k.execute(kernel.Request{Anew: true, Code: "print(numpy.random.get_bit_generator() is g, g.random_raw() == numpy.random.PCG64(7).random_raw())"})
	if c.Stdout != "True False\n" {
		t.Errorf("%+v", c)
	}
}

// nodeProbes are asked of a Node kernel before it draws anew and after: it answers the
// same.
var nodeProbes = []string{
	"['randomBytes', 'randomFill', 'randomFillSync', 'randomInt', 'randomUUID', 'getRandomValues', 'pseudoRandomBytes'].map((n) => [n, c[n].name, c[n].length].join())",
	"const d = Object.getOwnPropertyDescriptor(Math, 'random'); [d.writable, d.enumerable, d.configurable, Math.random.name, Math.random.length, 'prototype' in Math.random]",
	"new Math.random()",
	"c.randomBytes(-1)", "c.randomBytes('x')", "c.randomBytes(2 ** 40)", "c.randomBytes(4, 5)", "c.randomBytes(0).length",
	"c.randomInt(5, 1)", "c.randomInt(2 ** 60)", "c.randomInt('x')", "c.randomInt(3, 4)", "c.randomInt(7, 8, 'x')",
	"c.randomFillSync('x')", "c.randomFillSync(new Uint8Array(4), 5)", "c.randomFillSync(new Uint8Array(4), 1, 9)",
	"c.randomFillSync(new Uint8Array(0)).length", "c.randomFillSync(new ArrayBuffer(0)).byteLength",
	"[...c.randomFillSync(new Uint16Array(4), 1, 2)].map((n, i) => i === 0 || i === 3 ? n : '')",
	"[...new Uint8Array(c.randomFillSync(new ArrayBuffer(64), 8, 48))].filter((n, i) => (i < 8 || i >= 56) && n)",
	"[...new Uint8Array(c.randomFillSync(new DataView(new ArrayBuffer(64), 8, 48), 4).buffer)].filter((n, i) => (i < 12 || i >= 56) && n)",
	"new Set(c.randomFillSync(new Uint8Array(1 << 16))).size",
	"await new Promise((ok) => c.randomFill(new Uint8Array(1 << 16), 1 << 15, (err, b) => ok([err, b.slice(0, 1 << 15).every((n) => !n), new Set(b).size])))",
	"c.randomFill(new Uint8Array(4), 9, () => {})", "c.randomFill(new Uint8Array(4))",
	"/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(c.randomUUID())", "c.randomUUID({ disableEntropyCache: 1 })",
	"crypto.getRandomValues(new Float32Array(1))", "crypto.getRandomValues(new Uint8Array(70000))", "(0, crypto.getRandomValues)(new Uint8Array(1))",
	"const n = Array.from({ length: 20000 }, Math.random); [n.every((x) => x >= 0 && x < 1), Math.round(n.reduce((a, b) => a + b) / 2000), n.some((x) => x < 1e-3), n.some((x) => x > 0.999)]",
	"const i = Array.from({ length: 20000 }, () => c.randomInt(-2, 3)); [...new Set(i)].sort()",
	"c.randomBytes.call(null, 3).length", "(await new Promise((ok) => setTimeout(() => c.randomBytes(9, (err, b) => ok(b)), 1))).length",
}

func TestNodeDrawsAnew(t *testing.T) {
	k := startNode(t)
	k.run("const c = require('crypto'); const { random } = Math; const native = Math.random")
	answers := func() (all []string) {
		for _, code := range nodeProbes {
			a := k.run(code)
			all = append(all, strings.Join([]string{a.Text(), a.Err(), a.Stdout, a.Stderr}, " | "))
		}
		return all
	}
	before := answers()
	k.start(kernel.Request{Code: "const f = require('fs'); while (!f.existsSync('drawn')) await new Promise((ok) => setTimeout(ok, 5))"})
	k.send(kernel.Request{Op: kernel.OpAnew})
	k.drew()
	k.touch("drawn")
	if c := k.finish(); c.Err() != "" || c.Stderr != "" {
		t.Errorf("the cell that ran: %+v", c)
	}
	if c := k.run("Math.random === native"); c.Text() != "false" {
		t.Errorf("Math.random is the old one: %+v", c)
	}
	for i, after := range answers() {
		if after != before[i] {
			t.Errorf("%s:\n%s, and before the copy\n%s", nodeProbes[i], after, before[i])
		}
	}
	// Once more, while it waits for the answer to a result; and what the code replaced
	// stays.
	k.acks = true
	k.start(kernel.Request{Code: "Math.random = () => 4; display(1); console.log(Math.random())"})
	if e, err := k.read(); err != nil || e.Ev != "result" {
		t.Fatal(e, err)
	}
	k.send(kernel.Request{Op: kernel.OpAnew})
	k.drew()
	k.send(kernel.Request{Op: kernel.OpAck})
	if c := k.finish(); c.Stdout != "4\n" {
		t.Errorf("%+v", c)
	}
	k.execute(kernel.Request{Anew: true, Code: "1"})
	if c := k.run("Math.random()"); c.Text() != "4" {
		t.Errorf("%+v", c)
	}
}

func TestBashDrawsAnew(t *testing.T) {
	k := startBash(t)
	for _, c := range []struct{ setup, code, want string }{
		{"RANDOM=7", "a=$RANDOM$RANDOM$RANDOM; RANDOM=7; [[ $a == $RANDOM$RANDOM$RANDOM ]] && echo same || echo other", "other"},
		{"unset RANDOM; RANDOM=7", "echo $RANDOM", "7"},
		{"unset RANDOM", "echo ${RANDOM-none}", "none"},
	} {
		k.run(c.setup)
		if got := k.execute(kernel.Request{Anew: true, Code: c.code}); got.Stdout != c.want+"\n" {
			t.Errorf("%s; %s: %+v", c.setup, c.code, got)
		}
	}
}
