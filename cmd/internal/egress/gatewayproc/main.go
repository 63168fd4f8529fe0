//go:build linux

package gatewayproc

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	gvlog "gvisor.dev/gvisor/pkg/log"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
	"github.com/cubby-sandbox/cubby/cmd/internal/egress/gateway"
)

// programName is the first argument of the process.
const programName = "cubby-gateway"

// fdServer is its end of the socket to the server's process.
const fdServer = 3

// memoryLimit is where the process begins to collect garbage more often, in bytes.
const memoryLimit = 256 << 20

// Is reports whether a process with this first argument is a gateway.
func Is(arg0 string) bool { return arg0 == programName }

// Dispatch is the gateway if this process was started as that, and does not return
// then. Every program that calls Start calls it first thing in main.
func Dispatch() {
	if len(os.Args) == 0 || !Is(os.Args[0]) {
		return
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "cubby: gateway:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve is the process's life. It ends with the socket to the server, which ends with
// the server.
func serve() error {
	debug.SetMemoryLimit(memoryLimit)
	time.Local = time.UTC // another would be looked for in files
	gvlog.SetLevel(gvlog.Warning)
	w, err := gatewaysWire(os.NewFile(fdServer, "server"))
	if err != nil {
		return err
	}
	defer w.close()
	if err := confine(); err != nil {
		return fmt.Errorf("not confined: %w", err)
	}
	s := &serving{wire: w, reports: make(chan report, 256)}
	first, _, err := w.receive()
	if err == nil {
		err = s.configure(first)
	}
	if err != nil {
		return err
	}
	defer s.gateway.Close()
	go s.tell()
	if err := w.send(&message{Op: opReady}, nil); err != nil {
		return err
	}
	for {
		m, card, err := w.receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if m.Op == opFlush {
			s.reports <- report{flush: m.Seq}
			s.gateway.TellAgain()
			continue
		}
		answer := &message{Op: opDone, Seq: m.Seq, Sandbox: m.Sandbox}
		if err := s.do(m, card); err != nil {
			answer.Error = err.Error()
		}
		if err := w.send(answer, nil); err != nil {
			return err
		}
	}
}

type serving struct {
	wire     *wire
	gateway  *gateway.Gateway
	operator egress.Operator // touched by the goroutine that receives alone
	reports  chan report
}

// report is what the server is told in its order: a flow, or the answer to an opFlush.
type report struct {
	flow  *egress.Flow
	flush uint64 // the message's Seq, where flow is nil
}

// configure makes the gateway of the server's first message.
func (s *serving) configure(m *message) error {
	if m.Op != opConfig || m.Operator == nil {
		return fmt.Errorf("the first message is %q", m.Op)
	}
	s.operator = *m.Operator
	g, err := gateway.New(gateway.Config{
		Logger: slog.New(slog.NewJSONHandler(logWriter{s.wire}, nil)), Operator: s.operator,
		Authority: m.Authority, Roots: m.Roots, OnFlow: s.onFlow,
	})
	s.gateway = g
	return err
}

// do what a message says. The card is handed on, or closed.
func (s *serving) do(m *message, card *os.File) error {
	switch m.Op {
	case opConfig:
		if m.Operator == nil {
			return errors.New("no configuration")
		}
		s.operator = *m.Operator
		s.gateway.Configure(s.operator)
		return nil
	case opAttach, opUpdate:
		if m.Rules == nil {
			return errors.New("no rules")
		}
		policy, err := egress.Compile(*m.Rules, s.operator)
		if err != nil {
			if card != nil {
				card.Close()
			}
			return err
		}
		if m.Op == opUpdate {
			return s.gateway.Update(m.Sandbox, policy)
		}
		return s.gateway.Attach(m.Sandbox, card, policy)
	case opDetach:
		s.gateway.Detach(m.Sandbox)
		return nil
	}
	return fmt.Errorf("a message %q", m.Op)
}

// onFlow does not wait for the server: what it does not read in time is lost.
func (s *serving) onFlow(f egress.Flow) {
	select {
	case s.reports <- report{flow: &f}:
	default:
	}
}

func (s *serving) tell() {
	for r := range s.reports {
		m := &message{Op: opDone, Seq: r.flush}
		if r.flow != nil {
			m = &message{Op: opFlow, Sandbox: r.flow.Sandbox, Flow: r.flow}
		}
		if s.wire.send(m, nil) != nil {
			return // the other goroutine sees it, too
		}
	}
}

// logWriter sends each line to the server.
type logWriter struct{ wire *wire }

func (w logWriter) Write(line []byte) (int, error) {
	if len(line) > maxTold/2 {
		line = []byte(`{"level":"WARN","msg":"a line that is too long for the log"}`)
	}
	return len(line), w.wire.send(&message{Op: opLog, Log: line}, nil)
}
