package container

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fake is the agent's end of a link, as a container that may be hostile has it.
type fake struct {
	t    testing.TB
	conn net.Conn
}

// dial returns a link to a fake that has greeted.
func dial(t testing.TB) (*link, *fake) {
	t.Helper()
	ours, theirs := net.Pipe()
	f := &fake{t, theirs}
	go f.say('H', 0, []byte(`{"version":1}`))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := newLink(ctx, ours, ours)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.close(io.EOF); theirs.Close() })
	return l, f
}

// say sends a frame as a piece of stdout.
func (f *fake) say(kind byte, program uint32, payload []byte) {
	body := appendFrame(nil, kind, program, payload)
	head := binary.BigEndian.AppendUint32([]byte{1, 0, 0, 0}, uint32(len(body)))
	_, _ = f.conn.Write(append(head, body...)) // the other end may have hung up
}

// mutter sends that many bytes of stderr.
func (f *fake) mutter(n int) {
	piece := append([]byte{2, 0, 0, 0, 0, 0, 128, 0}, make([]byte, 32<<10)...)
	for ; n > 0; n -= 32 << 10 {
		if _, err := f.conn.Write(piece); err != nil {
			return
		}
	}
}

// hear returns the next frame from the host.
func (f *fake) hear() frame {
	f.t.Helper()
	_ = f.conn.SetReadDeadline(time.Now().Add(time.Minute))
	var h [headerSize]byte
	if _, err := io.ReadFull(f.conn, h[:]); err != nil {
		f.t.Error("the fake:", err)
		return frame{}
	}
	payload := make([]byte, binary.BigEndian.Uint32(h[:]))
	if _, err := io.ReadFull(f.conn, payload); err != nil {
		f.t.Error("the fake:", err)
	}
	return frame{h[4], binary.BigEndian.Uint32(h[5:]), payload}
}

// drain reads what the host says, so that it never waits.
func (f *fake) drain() { go io.Copy(io.Discard, f.conn) }

func TestLink(t *testing.T) {
	l, f := dial(t)
	go func() {
		asked := f.hear()
		var s spec
		if asked.kind != 'R' || json.Unmarshal(asked.payload, &s) != nil || strings.Join(s.Argv, " ") != "echo hi" {
			t.Errorf("got %c %s", asked.kind, asked.payload)
		}
		f.drain()
		f.say('S', asked.program, nil)
		f.say('O', asked.program, []byte("hi\n"))
		f.say('E', asked.program, []byte("oh\n"))
		f.say('O', asked.program, []byte("there\n"))
		f.say('X', asked.program, []byte(`{"code":3,"dropped":7}`))
	}()
	var mu sync.Mutex
	got := ""
	p, err := l.start(t.Context(), spec{Argv: []string{"echo", "hi"}, output: func(stderr bool, b []byte) {
		mu.Lock()
		defer mu.Unlock()
		if stderr {
			got += "!"
		}
		got += string(b)
	}})
	if err != nil {
		t.Fatal(err)
	}
	x, err := p.wait(t.Context())
	if err != nil || x.Code != 3 || x.Dropped != 7 || got != "hi\n!oh\nthere\n" {
		t.Errorf("got %+v, %v, %q", x, err, got)
	}
	if _, err := p.write([]byte("late")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("input after the end: %v", err)
	}
}

// Whatever an agent says that it should not ends the link; nothing grows and
// nothing waits.
func TestLinkLies(t *testing.T) {
	many := bytes.Repeat([]byte("x"), 30<<10)
	for what, lie := range map[string]func(f *fake, n uint32){
		"a program that is none":    func(f *fake, n uint32) { f.say('O', n+1, []byte("x")) },
		"a kind that is none":       func(f *fake, n uint32) { f.say('?', n, nil) },
		"a second greeting":         func(f *fake, n uint32) { f.say('H', 0, []byte("{}")) },
		"started twice":             func(f *fake, n uint32) { f.say('S', n, nil) },
		"failed after the start":    func(f *fake, n uint32) { f.say('F', n, []byte(`{"errno":"EAGAIN"}`)) },
		"empty output":              func(f *fake, n uint32) { f.say('O', n, nil) },
		"an allowance of odd size":  func(f *fake, n uint32) { f.say('A', n, []byte("123")) },
		"an allowance out of thin":  func(f *fake, n uint32) { f.say('A', n, []byte{0, 0, 0, 1}) },
		"an allowance of nothing":   func(f *fake, n uint32) { f.say('A', n, []byte{0, 0, 0, 0}) },
		"an end by no signal":       func(f *fake, n uint32) { f.say('X', n, []byte(`{"code":-9223372036854775808}`)) },
		"an end with a huge code":   func(f *fake, n uint32) { f.say('X', n, []byte(`{"code":4294967296}`)) },
		"less than no output":       func(f *fake, n uint32) { f.say('X', n, []byte(`{"dropped":-1}`)) },
		"endless words":             func(f *fake, n uint32) { f.mutter(2 << 20) },
		"an allowance that is huge": func(f *fake, n uint32) { f.say('A', n, []byte{255, 255, 255, 255}) },
		"an end that is no JSON":    func(f *fake, n uint32) { f.say('X', n, []byte("{")) },
		"two ends": func(f *fake, n uint32) {
			f.say('X', n, []byte("{}"))
			f.say('X', n, []byte("{}"))
		},
		"more output than the window": func(f *fake, n uint32) {
			for range 20 {
				f.say('O', n, many)
			}
		},
		"a frame that is too long": func(f *fake, n uint32) {
			_, _ = f.conn.Write([]byte{1, 0, 0, 0, 0, 0, 0, 9, 0, 16, 0, 0, 'O', 0, 0, 0, 1})
		},
		"half a frame": func(f *fake, n uint32) {
			_, _ = f.conn.Write([]byte{1, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 9, 'O', 0, 0, 0, 1})
			f.conn.Close()
		},
		"no stream of Docker's": func(f *fake, n uint32) { _, _ = f.conn.Write([]byte("HTTP/1.1 500 oops\r\n\r\n")) },
		"silence":               func(f *fake, n uint32) { f.conn.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			l, f := dial(t)
			go func() {
				n := f.hear().program
				f.drain()
				f.say('S', n, nil)
				lie(f, n)
			}()
			release := make(chan struct{})
			p, err := l.start(t.Context(), spec{Argv: []string{"x"}, output: func(bool, []byte) { <-release }})
			if err == nil {
				select {
				case <-l.lost:
				case <-time.After(time.Minute):
					t.Error("the link lives on")
				}
				close(release)
				_, err = p.wait(t.Context())
				if what == "two ends" {
					err = l.cause() // the first was good
				}
			}
			if err == nil {
				t.Error("there is no error")
			}
			if _, err := l.start(t.Context(), spec{Argv: []string{"x"}}); err == nil {
				t.Error("the link is used again")
			}
		})
	}
}

// Whatever an agent does not do, nobody waits for it for ever, also who has no
// bound of his own: the link is given up.
func TestLinkSilence(t *testing.T) {
	for _, tc := range []struct {
		name    string
		starts  bool
		timeout float64 // of the program, seconds
		kill    bool
		want    error
		within  time.Duration
	}{
		{"it does not say whether it has started a program", false, 0, false, errSilent, startTime},
		{"it does not end a program that it is told to end", true, 0, true, errKilledInVain, endTime},
		{"it does not end a program whose time is over", true, 5, false, errKilledInVain, 5*time.Second + startTime + endTime},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, f := dial(t)
				go func() {
					n := f.hear().program
					if tc.starts {
						f.say('S', n, nil)
					}
					f.drain()
				}()
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				began := time.Now()
				p, err := l.start(ctx, spec{Argv: []string{"x"}, Timeout: tc.timeout, output: func(bool, []byte) {}})
				if err == nil {
					if tc.kill {
						cancel()
					}
					_, err = p.wait(ctx)
				}
				if took := time.Since(began); !errors.Is(err, tc.want) || !errors.Is(l.cause(), tc.want) || took > tc.within {
					t.Errorf("got %v after %v, and %v", err, took, l.cause())
				}
				l.close(io.EOF)
				f.conn.Close()
			})
		})
	}
}

// An agent whose programs cannot begin is given up.
func TestLinkCannotBegin(t *testing.T) {
	l, f := dial(t)
	go func() {
		n := f.hear().program
		f.drain()
		f.say('F', n, []byte(`{"errno":"ETIMEDOUT","text":"it does not begin"}`))
	}()
	if _, err := l.start(t.Context(), spec{Argv: []string{"x"}}); !errors.Is(err, errStopped) || !errors.Is(l.cause(), errStopped) {
		t.Errorf("got %v", err)
	}
}

// A program's input waits for the window, and is as it was given.
func TestLinkInput(t *testing.T) {
	l, f := dial(t)
	data := make([]byte, 3*window)
	for i := range data {
		data[i] = byte(i * 7 >> 3)
	}
	heard := make(chan []byte)
	go func() {
		n := f.hear().program
		f.say('S', n, nil)
		var all []byte
		open := 0
		for {
			in := f.hear()
			if in.kind != 'I' {
				break
			}
			all = append(all, in.payload...)
			if open += len(in.payload); open > window {
				t.Errorf("%d bytes beyond the window", open)
			}
			if open >= window/2 {
				f.say('A', n, binary.BigEndian.AppendUint32(nil, uint32(open)))
				open = 0
			}
		}
		f.drain()
		f.say('X', n, []byte(`{}`))
		heard <- all
	}()
	p, err := l.start(t.Context(), spec{Argv: []string{"x"}, Input: true, output: func(bool, []byte) {}})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := p.write(data); n != len(data) || err != nil {
		t.Errorf("wrote %d, %v", n, err)
	}
	p.closeInput()
	if !bytes.Equal(<-heard, data) {
		t.Error("the input is not what was given")
	}
}

// FuzzLink feeds a link whatever a container may send.
func FuzzLink(f *testing.F) {
	piece := func(b []byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{1, 0, 0, 0}, uint32(len(b))), b...)
	}
	f.Add(piece(appendFrame(nil, 'S', 1, nil)))
	f.Add(append(piece(appendFrame(nil, 'S', 1, nil)), piece(appendFrame(appendFrame(nil, 'O', 1, []byte("out")), 'X', 1, []byte(`{"code":1}`)))...))
	f.Add(piece(appendFrame(nil, 'F', 1, []byte(`{"errno":"ENOENT","text":"x"}`))))
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 3, 'l', 'o', 'g', 1, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, data []byte) {
		l, a := dial(t)
		go func() {
			_ = a.hear()
			a.drain()
			_, _ = a.conn.Write(data)
			a.conn.Close()
		}()
		total := 0
		p, err := l.start(t.Context(), spec{Argv: []string{"x"}, output: func(_ bool, b []byte) { total += len(b) }})
		if err == nil {
			_, _ = p.wait(t.Context()) // either is right
		}
		<-l.lost
		if total > len(data) || len(l.log.String()) > maxTail {
			t.Errorf("%d bytes of output and %d of log from %d", total, len(l.log.String()), len(data))
		}
	})
}

// FuzzBuild feeds the reader of build reports.
func FuzzBuild(f *testing.F) {
	f.Add([]byte(`{"stream":"Step 1"}{"aux":{"ID":"sha256:1"}}`))
	f.Add([]byte(`{"errorDetail":{"message":"no"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		id, log, err := readBuild(bytes.NewReader(data))
		if err == nil && id == "" || len(log) > maxTail {
			t.Errorf("got %q, %d bytes, %v", id, len(log), err)
		}
		if strings.ContainsAny(lastLines(log), "\x1b\x07\r") {
			t.Errorf("escape codes in %q", lastLines(log))
		}
	})
}

func TestGPUs(t *testing.T) {
	for in, want := range map[string]string{
		"":                                       "null",
		"all":                                    `[{"Driver":"","Count":-1,"DeviceIDs":null,"Capabilities":[["gpu"]],"Options":null}]`,
		"2":                                      `[{"Driver":"","Count":2,"DeviceIDs":null,"Capabilities":[["gpu"]],"Options":null}]`,
		"device=0,1":                             `[{"Driver":"","Count":0,"DeviceIDs":["0","1"],"Capabilities":[["gpu"]],"Options":null}]`,
		`"device=0,GPU-3","driver=nvidia"`:       `[{"Driver":"nvidia","Count":0,"DeviceIDs":["0","GPU-3"],"Capabilities":[["gpu"]],"Options":null}]`,
		`count=1,"capabilities=compute,utility"`: `[{"Driver":"","Count":1,"DeviceIDs":null,"Capabilities":[["compute","utility","gpu"]],"Options":null}]`,
		"none":                                   "error", "-1": "error", "0": "error", "device=0,count=2": "error", `"device=0",count=2`: "error", "x=y": "error", `"`: "error",
	} {
		r, err := parseGPUs(in)
		got, jerr := json.Marshal(r)
		if jerr != nil {
			t.Fatal(jerr)
		}
		if err != nil {
			got = []byte("error")
		}
		if string(got) != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}
