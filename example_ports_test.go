//go:build linux

package cubby_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"
)

// A server in the sandbox is reached through a client whose requests go to its port.
func ExampleSandbox_Transport() {
	ctx := context.Background()
	sbx := newSandbox()
	defer sbx.Close()
	if _, err := sbx.Commands().Start(ctx, "echo hello > index.html; exec python3 -m http.server 8000"); err != nil {
		log.Fatal(err)
	}
	web := &http.Client{Transport: sbx.Transport(8000), Timeout: 30 * time.Second}
	for {
		resp, err := web.Get("http://sandbox/index.html")
		if err != nil {
			log.Fatal(err)
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // it is hostile: bound it
		resp.Body.Close()
		if err != nil {
			log.Fatal(err)
		}
		if resp.StatusCode == http.StatusBadGateway {
			time.Sleep(50 * time.Millisecond) // the server has not opened its port yet
			continue
		}
		fmt.Print(resp.Status, " ", string(text))
		break
	}
	// Output: 200 OK hello
}
