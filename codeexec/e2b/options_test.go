package e2b

import (
	"reflect"
	"testing"
	"time"
)

// TestOptions: tRPC-Agent's options set the fields that they are named after.
func TestOptions(t *testing.T) {
	var got options
	for _, set := range []Option{
		WithAPIURL("http://a"), WithAPIKey("k"), WithTemplate("t"), WithSandboxID("i1"),
		WithSandboxTimeout(time.Hour), WithExecutionTimeout(time.Minute),
	} {
		set(&got)
	}
	want := Config{APIURL: "http://a", APIKey: "k", Template: "t", SandboxID: "i1", SandboxTimeout: time.Hour, Timeout: time.Minute}
	if got.err != nil || !reflect.DeepEqual(got.Config, want) {
		t.Errorf("%+v, %v", got.Config, got.err)
	}
}
