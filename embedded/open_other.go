//go:build !linux

package embedded

import (
	"context"
	"errors"
	"runtime"

	"github.com/cubby-sandbox/cubby"
)

type child struct{}

func (*child) close() error { return nil }

// Open needs Linux.
func Open(context.Context, Config) (*Cubby, error) {
	return nil, &cubby.Error{Op: "open", Code: cubby.CodeUnimplemented,
		Err:  errors.New("sandboxes run on Linux only, this is " + runtime.GOOS),
		Hint: "use cubby.NewClient with a Cubby server on Linux"}
}
