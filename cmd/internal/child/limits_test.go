package child

import (
	"context"
	"errors"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// plain is an engine that can start machines only, and fails.
type plain struct{ engine.Engine }

var errPlain = errors.New("it cannot")

func (plain) Start(context.Context, engine.Spec) (engine.Machine, error) { return nil, errPlain }

type restoring struct{ plain }

func (restoring) Restore(context.Context, engine.Spec, string, engine.RestoreOptions) (engine.Machine, error) {
	return nil, errPlain
}

func (restoring) Check(string, engine.RestoreOptions) error { return errPlain }

// TestLimitedHidesNothing: what looks at an engine's errors has the powers of that
// engine, no more and no fewer.
func TestLimitedHidesNothing(t *testing.T) {
	for _, e := range []engine.Engine{plain{}, restoring{}} {
		l := limited(e)
		if _, err := l.Start(t.Context(), engine.Spec{}); !errors.Is(err, errPlain) {
			t.Errorf("%T: start: %v", e, err)
		}
		_, can := e.(engine.Restorer)
		r, still := l.(engine.Restorer)
		if can != still {
			t.Errorf("%T: it can restore: %v; behind limited: %v", e, can, still)
		}
		if still {
			if _, err := r.Restore(t.Context(), engine.Spec{}, "", engine.RestoreOptions{}); !errors.Is(err, errPlain) {
				t.Errorf("%T: restore: %v", e, err)
			}
			if err := r.Check("", engine.RestoreOptions{}); !errors.Is(err, errPlain) {
				t.Errorf("%T: check: %v", e, err)
			}
		}
	}
}
