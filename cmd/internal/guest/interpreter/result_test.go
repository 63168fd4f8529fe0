//go:build linux

package interpreter

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/guest/asciijson"
	"github.com/cubby-sandbox/cubby/cmd/internal/guest/kernel"
)

// TestResultLine is what becomes of results, kernels' and others'.
func TestResultLine(t *testing.T) {
	deep := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	for name, c := range map[string]struct{ data, want string }{
		"every form has its field": {`{"text/plain":"t","text/html":"<b>","image/png":"aGk=","application/json":{"a":1},"e2b/data":{"b":[2]},"e2b/chart":{},"x/y":[3]}`,
			`{"type":"result","html":"<b>","png":"aGk=","json":{"a":1},"data":{"b":[2]},"chart":{},"is_main_result":true,"extra":{"x/y":[3]},"text":"t"}`},
		"numbers keep their digits": {`{"application/json":{"a":1.0,"b":1152921504606846977,"c":-0.0,"d":1E400},"e2b/data":{"id":[18446744073709551615]},"e2b/chart":[0.10],"x/y":1.0}`,
			`{"type":"result","json":{"a":1.0,"b":1152921504606846977,"c":-0.0,"d":1E400},"data":{"id":[18446744073709551615]},"chart":[0.10],"is_main_result":true,"extra":{"x/y":1.0}}`},
		"quotes of a literal":     {`{"text/plain":"'it''s'"}`, `{"type":"result","is_main_result":true,"extra":{},"text":"it''s"}`},
		"an empty text":           {`{"text/plain":""}`, `{"type":"result","is_main_result":true,"extra":{},"text":""}`},
		"no JSON":                 {`{"application/json":null,"e2b/data":null}`, `{"type":"result","is_main_result":true,"extra":{}}`},
		"a text that is none":     {`{"text/html":{"a":1},"text/plain":7}`, `{"type":"result","is_main_result":true,"extra":{"text/html":{"a":1},"text/plain":7}}`},
		"nested deep":             {`{"text/plain":"t","application/json":` + deep + `,"x/y":` + deep + `}`, `{"type":"result","is_main_result":true,"extra":{},"text":"t"}`},
		"halves of pairs":         {`{"text/plain":"\ud800","e2b/data":{"\udc00":"\ud83d\ude00"}}`, `{"type":"result","data":{"\ufffd":"\ud83d\ude00"},"is_main_result":true,"extra":{},"text":"\ufffd"}`},
		"what is no UTF-8":        {"{\"text/plain\":\"a\xffb\",\"e2b/data\":[\"\xff\"]}", `{"type":"result","data":["\ufffd"],"is_main_result":true,"extra":{},"text":"a\ufffdb"}`},
		"what clients might cut":  {`{"text/plain":"é😀","e2b/data":["é\u2028😀"]}`, `{"type":"result","data":["\u00e9\u2028\ud83d\ude00"],"is_main_result":true,"extra":{},"text":"\u00e9\ud83d\ude00"}`},
		"escaped text and spaces": {`{"text/plain":"a\n\"b\"","e2b/data": [1, 2] }`, `{"type":"result","data":[1,2],"is_main_result":true,"extra":{},"text":"a\n\"b\""}`},
		"the signs of a web page": {`{"text/html":"<&>","e2b/data":["<&>"]}`, `{"type":"result","html":"<&>","data":["<&>"],"is_main_result":true,"extra":{}}`},
	} {
		e := kernel.Event{Ev: "result", Main: true}
		if err := json.Unmarshal([]byte(c.data), &e.Data); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var line bytes.Buffer
		if err := asciijson.Encode(&line, resultLine(e)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := strings.TrimSuffix(line.String(), "\n"); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

// TestLeftOut: forms have E2B's names, once each, and a kernel cannot invent others.
func TestLeftOut(t *testing.T) {
	e := kernel.Event{LeftOut: []string{"application/json", "e2b/data", "application/json", "image/png", "x/y", ""}}
	if got := strings.Join(leftOut(e), " "); got != "json data png" {
		t.Errorf("got %q", got)
	}
}
