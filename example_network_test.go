//go:build linux

package cubby_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/embedded"
)

// Code reaches what the network allows, which may change while it runs. Here that is a
// server on this machine, which a private Cubby has to be told of besides.
func ExampleWithNetwork() {
	ctx := context.Background()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	go http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	port := listener.Addr().(*net.TCPAddr).Port

	c, err := embedded.Open(ctx, embedded.Config{HostPorts: []int{port}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	host := fmt.Sprintf("host.cubby.internal:%d", port)
	sbx, err := c.Create(ctx, cubby.WithNetwork(cubby.Network{Allow: []string{"@pypi", host}}))
	if err != nil {
		log.Fatal(err)
	}
	code := fmt.Sprintf("from urllib.request import urlopen\nprint(urlopen('http://%s', timeout=10).read().decode())", host)
	ex, err := sbx.RunCode(ctx, code)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(ex.Stdout)

	if err := sbx.SetNetwork(ctx, cubby.Network{}); err != nil {
		log.Fatal(err)
	}
	if ex, err = sbx.RunCode(ctx, code); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(ex.Error.Value, "Name or service not known"))
	// Output:
	// hello
	// true
}

// What code wanted to connect to is told, with what would let it.
func ExampleSandbox_Flows() {
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
	if _, err := sbx.RunCode(ctx, "import socket; socket.create_connection(('93.184.216.34', 443))"); err != nil {
		log.Fatal(err)
	}
	flows, err := sbx.Flows(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range flows {
		fmt.Println(f.Addr, f.Allowed, f.Allow)
	}
	// Output:
	// 93.184.216.34:443 false 93.184.216.34:443
}
