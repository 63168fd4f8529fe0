// Package modeltest tests implementations of agent.Model over the scripted
// endpoints of package modelserver: all of them must pass the same tests.
package modeltest

import (
	"encoding/base64"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/modelserver"
)

// Pixel64 is a PNG of one pixel, in base64.
const Pixel64 = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// Pixel is that PNG.
func Pixel() []byte {
	data, err := base64.StdEncoding.DecodeString(Pixel64)
	if err != nil {
		panic(err) // of a constant
	}
	return data
}

// Serve serves a script until the test ends.
func Serve(t *testing.T, config modelserver.Config) *modelserver.Server {
	t.Helper()
	s, err := modelserver.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TwoTurns is a script that thinks, writes and calls two tools, add and now, and
// then, given "six" and "noon" and a picture, answers.
func TwoTurns() *modelserver.Script {
	return &modelserver.Script{Name: "two turns", Steps: []modelserver.Step{
		{Expect: []string{"How much"}, ExpectSystem: []string{"/^Be .+\\.$/"}, Reply: modelserver.Reply{
			Thinking: "Two sums, I think.", Text: "Let me see: äöü 🎉.", Usage: modelserver.Usage{Input: 11, Output: 22},
			Calls: []modelserver.Call{
				{Name: "add", Arguments: map[string]any{"a": 1, "b": []int{2, 3}}},
				{ID: "second", Name: "now"},
			}}},
		{Expect: []string{"six", "/(?s)six.*noon/"}, Images: 1, Reply: modelserver.Reply{Text: "Six, at noon.", Usage: modelserver.Usage{Input: 33, Output: 44}}},
	}}
}
