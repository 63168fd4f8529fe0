//go:build linux

package cubby_test

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"testing"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/testenv"
)

// TestMain builds the cubby that the examples start, and leaves them out of a short
// run: they are all in this package that needs a sandbox.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		if err := flag.Set("test.skip", "^Example"); err != nil {
			log.Fatal(err)
		}
		os.Exit(m.Run())
	}
	if err := testenv.SetBinary(); err != nil {
		log.Fatal(err)
	}
	if err := os.Setenv("CUBBY_PYTHON", "/usr/bin/python3"); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	if closeShared != nil {
		if err := closeShared(); err != nil {
			log.Fatal(err)
		}
	}
	os.Exit(code)
}

// closeShared ends what shared has opened.
var closeShared func() error

// shared is the client of a private Cubby that the examples have in common.
var shared = sync.OnceValue(func() *cubby.Client {
	c, err := embedded.Open(context.Background(), embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	closeShared = c.Close
	return c.Client
})

// newSandbox makes a sandbox for an example; the first Example shows how.
func newSandbox(opts ...cubby.CreateOption) *cubby.Sandbox {
	sbx, err := shared().Create(context.Background(), opts...)
	if err != nil {
		log.Fatal(err)
	}
	return sbx
}

// The first run: a private Cubby, a sandbox, and code in it. With a server, or with
// E2B's cloud, only the first call is another: cubby.NewClient.
func Example() {
	ctx := context.Background()
	c, err := embedded.Open(ctx, embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sbx, err := c.Create(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer sbx.Close()
	ex, err := sbx.RunCode(ctx, "x = 6\nprint('multiplied')\nx*7")
	if err != nil {
		log.Fatal(err) // the sandbox failed; what the code did wrong is in ex
	}
	fmt.Print(ex.Stdout)
	fmt.Println(ex.Text())
	// Output:
	// multiplied
	// 42
}

// A server's address and key come from the environment (E2B_API_URL, E2B_API_KEY)
// where Config leaves them out.
func ExampleNewClient() {
	c, err := cubby.NewClient(cubby.Config{APIURL: "http://127.0.0.1:8080", APIKey: "e2b_0123"})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	sbx, err := c.Create(ctx, cubby.WithTemplate("base"))
	if err != nil {
		log.Fatal(err)
	}
	defer sbx.Close()
	fmt.Println(sbx.ID())
}

// A sandbox can be found again by its id, and by what it was labelled with.
func ExampleClient_List() {
	ctx := context.Background()
	sbx := newSandbox(cubby.WithMetadata(map[string]string{"user": "ada"}),
		cubby.WithLimits(cubby.Limits{Memory: 256 << 20}))
	defer sbx.Close()
	for info, err := range shared().List(ctx, cubby.ListOptions{Metadata: map[string]string{"user": "ada"}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(info.ID == sbx.ID(), info.State, info.Limits.Memory>>20, "MiB")
	}
	// Output: true running 256 MiB
}
