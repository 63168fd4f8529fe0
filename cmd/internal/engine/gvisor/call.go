package gvisor

import (
	"context"
	"fmt"

	"gvisor.dev/gvisor/pkg/control/client"
)

// call makes one call to a sentry's control server. A sentry that does not answer
// holds it up until ctx is done or the sentry is killed.
func call(ctx context.Context, socket, method string, arg, result any) error {
	conn, err := client.ConnectTo(socket)
	if err != nil {
		return fmt.Errorf("the sandbox's kernel cannot be reached: %w", err)
	}
	// Not the client's own Close: it waits for the call.
	stop := context.AfterFunc(ctx, func() { conn.Socket.Close() })
	err = conn.Call(method, arg, result)
	if !stop() {
		return context.Cause(ctx)
	}
	conn.Socket.Close()
	return err
}
