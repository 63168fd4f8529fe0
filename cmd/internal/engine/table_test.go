//go:build linux

package engine_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

type named struct {
	engine.Engine
	name, state string
}

func (n named) Name() string { return n.name }

func TestTable(t *testing.T) {
	dispatched := ""
	kind := func(name string) engine.Kind {
		return engine.Kind{
			Open:     func(cfg engine.Config) (engine.Engine, error) { return named{name: name, state: cfg.StateDir}, nil },
			Dispatch: func() { dispatched += name },
		}
	}
	broken := errors.New("no luck")
	table := engine.Table{
		"walls": kind("walls"),
		"doors": kind("doors"),
		"none":  {Open: func(engine.Config) (engine.Engine, error) { return nil, broken }},
	}
	for _, name := range []string{"walls", "doors"} {
		e, err := table.Open(name, engine.Config{StateDir: "/state"})
		if err != nil || e != (named{name: name, state: "/state"}) {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
	if _, err := table.Open("none", engine.Config{}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"", "wall", "Walls"} {
		_, err := table.Open(name, engine.Config{})
		if !errors.Is(err, engine.ErrUnknown) || !strings.Contains(err.Error(), "doors, none, walls") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if table.Dispatch(); len(dispatched) != len("wallsdoors") {
		t.Errorf("dispatched %q", dispatched)
	}
}
