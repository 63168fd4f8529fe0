package codeexec_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// Models write names as they have seen them elsewhere.
func TestSpecsAsModelsWriteThem(t *testing.T) {
	full := codeexec.OutputSpec{Globs: []string{"out/*"}, MaxFiles: 3, MaxFileBytes: 4, MaxTotalBytes: 5, Save: true, NameTemplate: "x", Inline: true}
	for _, in := range []string{
		`{"globs":["out/*"],"max_files":3,"max_file_bytes":4,"max_total_bytes":5,"save":true,"name_template":"x","inline":true}`,
		`{"Globs":["out/*"],"MaxFiles":3,"MaxFileBytes":4,"MaxTotalBytes":5,"Save":true,"NameTemplate":"x","Inline":true}`,
		`{"globs":"out/*","maxFiles":3,"maxFileBytes":4,"maxTotalBytes":5,"save":true,"nameTemplate":"x","inline":true,"other":{}}`,
	} {
		var got codeexec.OutputSpec
		if err := json.Unmarshal([]byte(in), &got); err != nil || !reflect.DeepEqual(got, full) {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	var again codeexec.OutputSpec
	if b, err := json.Marshal(full); err != nil || json.Unmarshal(b, &again) != nil || !reflect.DeepEqual(again, full) {
		t.Errorf("there and back: %+v, %v", again, err)
	}
	want := codeexec.InputSpec{From: "artifact://a", To: "work/a", Mode: "link", Pin: true, ReadOnly: true}
	for _, in := range []string{
		`{"from":"artifact://a","to":"work/a","mode":"link","pin":true,"read_only":true}`,
		`{"From":"artifact://a","To":"work/a","Mode":"link","Pin":true,"ReadOnly":true}`,
		`{"src":"artifact://a","dst":"work/a","mode":"link","pin":true,"readOnly":true}`,
	} {
		var got codeexec.InputSpec
		if err := json.Unmarshal([]byte(in), &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for _, bad := range []string{`[]`, `"x"`, `{"src":"a","from":"b"}`, `{"from":3}`, `{`} {
		if err := json.Unmarshal([]byte(bad), new(codeexec.InputSpec)); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	if err := json.Unmarshal([]byte("null"), new(codeexec.OutputSpec)); err != nil {
		t.Errorf("null: %v", err)
	}
}
