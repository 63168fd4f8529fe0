//go:build linux

package cubby_test

import (
	"context"
	"fmt"
	"log"

	"github.com/cubby-sandbox/cubby"
)

// A paused sandbox takes nothing but disk, and goes on where it was.
func ExampleSandbox_Pause() {
	ctx := context.Background()
	sbx := newSandbox()
	defer sbx.Close()
	if _, err := sbx.RunCode(ctx, "visits = 1"); err != nil {
		log.Fatal(err)
	}
	if err := sbx.Pause(ctx); err != nil {
		log.Fatal(err)
	}
	_, err := sbx.RunCode(ctx, "visits += 1")
	fmt.Println(err)
	sbx, err = shared().Connect(ctx, sbx.ID()) // also by another program
	if err != nil {
		log.Fatal(err)
	}
	ex, err := sbx.RunCode(ctx, "visits + 1")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ex.Text())
	// Output:
	// run code: the sandbox is paused (Client.Connect resumes it)
	// 2
}

// What takes long to prepare is prepared once.
func ExampleSandbox_Snapshot() {
	ctx := context.Background()
	sbx := newSandbox()
	defer sbx.Close()
	if _, err := sbx.RunCode(ctx, "import json; table = json.loads('[1, 2, 3]')"); err != nil {
		log.Fatal(err)
	}
	ready, err := sbx.Snapshot(ctx, cubby.WithName("table:v1"))
	if err != nil {
		log.Fatal(err)
	}
	defer shared().DeleteSnapshot(ctx, ready.ID)
	for range 2 {
		other := newSandbox(cubby.WithTemplate(ready.ID))
		ex, err := other.RunCode(ctx, "table.pop()")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ready.ID, ex.Text())
		other.Close()
	}
	// Output:
	// table:v1 3
	// table:v1 3
}

// Copies try several ways from one state, which the sandbox itself keeps.
func ExampleSandbox_Fork() {
	ctx := context.Background()
	sbx := newSandbox()
	defer sbx.Close()
	if _, err := sbx.RunCode(ctx, "words = ['b', 'a']"); err != nil {
		log.Fatal(err)
	}
	copies, err := sbx.Fork(ctx, 2)
	for _, c := range copies { // also where fewer could be made
		defer c.Close()
	}
	if err != nil {
		log.Fatal(err)
	}
	for i, code := range []string{"words.sort(); words", "words + ['c']"} {
		ex, err := copies[i].RunCode(ctx, code)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(ex.Text())
	}
	ex, err := sbx.RunCode(ctx, "words")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(ex.Text())
	// Output:
	// ['a', 'b']
	// ['b', 'a', 'c']
	// ['b', 'a']
}
