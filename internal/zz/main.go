package main

import (
	"context"
	"net/http"
	"os"

	"github.com/cubby-sandbox/cubby/internal/guest"
)

func main() {
	if guest.IsGuest(os.Args[0]) {
		os.Exit(guest.Main())
	}
	home, _ := os.MkdirTemp("", "zz")
	cfg := guest.Config{UID: 0, GID: 0, UserName: "user", Home: home, KernelDir: home + "/.k", Interpreters: map[string]string{"python": "/usr/bin/python3", "bash": "/bin/bash", "javascript": os.Getenv("NODE")}, Env: []string{"PATH=/usr/bin:/bin", "LANG=C.UTF-8"}}
	g, err := guest.New(context.Background(), cfg)
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", g.CodeInterpreter())
	go http.ListenAndServe("127.0.0.1:49983", g.Envd())
	panic(http.ListenAndServe("127.0.0.1:49999", mux))
}
