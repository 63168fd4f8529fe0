package toolbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/cubby-sandbox/cubby"
)

func sample(name string) Kept {
	return Kept{Name: name, Description: "Adds\x1b[31m\nnumbers.", Language: "py", Code: "def add(a, b): return a + b", Function: "add", Schema: json.RawMessage(`{"type": "object"}`)}
}

func TestBox(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *Box{
		"memory": func(*testing.T) *Box { return Memory() },
		"folder": func(t *testing.T) *Box {
			b, err := Open(filepath.Join(t.TempDir(), "a", "b"))
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, ctx := open(t), t.Context()
			if all, err := b.List(ctx); len(all) != 0 || err != nil {
				t.Fatal(all, err)
			}
			k, err := b.Keep(ctx, sample("add"))
			if err != nil {
				t.Fatal(err)
			}
			if k.Description != "Adds numbers." || k.Language != "python" || len(k.Hash) != 64 || string(k.Schema) != `{"type":"object"}` {
				t.Errorf("%+v", k)
			}
			if got, err := b.Get(ctx, "add"); err != nil || got.Hash != k.Hash || !got.Created.Equal(k.Created) || got.Code != k.Code {
				t.Errorf("%+v, %v", got, err)
			}
			if again, err := b.Keep(ctx, sample("add")); err != nil || !again.Created.Equal(k.Created) {
				t.Errorf("the same once more: %v, %v", again, err)
			}
			other := sample("add")
			other.Code += " + 1"
			if _, err := b.Keep(ctx, other); cubby.CodeOf(err) != cubby.CodeConflict {
				t.Errorf("other code of that name: %v", err)
			}
			if _, err := b.Keep(ctx, sample("a_first")); err != nil {
				t.Fatal(err)
			}
			if all, err := b.List(ctx); err != nil || len(all) != 2 || all[0].Name != "a_first" {
				t.Errorf("%v, %v", all, err)
			}
			if err := b.Remove(ctx, "add"); err != nil {
				t.Error(err)
			}
			for _, name := range []string{"add", "../add", "", "A", strings.Repeat("x", 65)} {
				_, err := b.Get(ctx, name)
				if err2 := b.Remove(ctx, name); cubby.CodeOf(err) != cubby.CodeNotFound || cubby.CodeOf(err2) != cubby.CodeNotFound {
					t.Errorf("%q: %v; %v", name, err, err2)
				}
			}
			for i := range MaxTools - 1 {
				if _, err := b.Keep(ctx, sample(fmt.Sprint("t", i))); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := b.Keep(ctx, sample("one_more")); cubby.CodeOf(err) != cubby.CodeConflict || !strings.Contains(err.Error(), "remove some") {
				t.Errorf("a full box: %v", err)
			}
			canceled, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := b.Keep(canceled, sample("x")); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

func TestKeepRefuses(t *testing.T) {
	for want, change := range map[string]func(*Kept){
		"is no name of a tool":      func(k *Kept) { k.Name = "../x" },
		"taken by a tool":           func(k *Kept) { k.Name = "keep_tool" },
		"describe":                  func(k *Kept) { k.Description = "\x1b[0m \n" },
		"in 1 to 1000 characters":   func(k *Kept) { k.Description = strings.Repeat("ä", 1001) },
		"not in \"typescript\"":     func(k *Kept) { k.Language = "ts" },
		"there is no code":          func(k *Kept) { k.Code = " \n" },
		"the code has":              func(k *Kept) { k.Code = strings.Repeat("x", MaxCode+1) },
		"has a NUL":                 func(k *Kept) { k.Code = "a\x00" },
		"no text in UTF-8":          func(k *Kept) { k.Code = "\xff" },
		"is no name of a function":  func(k *Kept) { k.Function = "f() or g" },
		"the schema is no JSON":     func(k *Kept) { k.Schema = nil },
		`its type must be "object"`: func(k *Kept) { k.Schema = json.RawMessage(`{"type":"array"}`) },
		"it has references":         func(k *Kept) { k.Schema = json.RawMessage(`{"type":"object","allOf":[{"$ref":"#"}]}`) },
		"the schema":                func(k *Kept) { k.Schema = json.RawMessage(`{"type":"object","properties":{"a":{"pattern":"("}}}`) },
		"of at most 32768": func(k *Kept) {
			k.Schema = json.RawMessage(`{"type":"object","title":"` + strings.Repeat("x", MaxSchema) + `"}`)
		},
		"the hash of tool add":         func(k *Kept) { k.Hash = "00" },
		"the session's name is longer": func(k *Kept) { k.Session = strings.Repeat("x", 201) },
	} {
		k := sample("add")
		change(&k)
		if _, err := Memory().Keep(t.Context(), k); cubby.CodeOf(err) != cubby.CodeInvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What is read is what was kept, to the byte.
func TestFolderExact(t *testing.T) {
	b, err := Open(filepath.Join(t.TempDir(), "tools"))
	if err != nil {
		t.Fatal(err)
	}
	k := sample("add")
	k.Code += " # <&>\u2028\x7f\r\n"
	k.Description = "<b>\u2028 & more"
	k.Schema = json.RawMessage("{\"type\":\"object\", \"title\":\"a<b>&\u2028\xff\\u003c\"}")
	k, err = b.Keep(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Get(t.Context(), "add")
	if err != nil || got.Code != k.Code || got.Description != k.Description || string(got.Schema) != string(k.Schema) {
		t.Errorf("%+v, %v; want %+v", got, err, k)
	}
}

// Files in the folder are whoever's. What is wrong with one does not hide others.
func TestFolderHostile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tools")
	b, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if _, err := b.Keep(ctx, sample("good")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "good.json")
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside.json")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	named := func(name string) string { return strings.Replace(string(text), `"good"`, `"`+name+`"`, 1) }
	write(outside, named("linked"))
	write(filepath.Join(dir, "edited.json"), strings.Replace(named("edited"), "a + b", "a - b", 1))
	write(filepath.Join(dir, "renamed.json"), string(text))
	write(filepath.Join(dir, "empty.json"), "")
	write(filepath.Join(dir, "twice.json"), named("twice")+named("twice"))
	write(filepath.Join(dir, "future.json"), strings.Replace(named("future"), `"version": 1`, `"version": 2`, 1))
	write(filepath.Join(dir, "more.json"), strings.Replace(named("more"), `"version": 1`, `"version": 1, "run_at_start": true`, 1))
	write(filepath.Join(dir, "large.json"), strings.Repeat(" ", maxFile+1))
	write(filepath.Join(dir, "README"), "no tool")
	write(filepath.Join(dir, "Not A Tool.json"), "no tool")
	write(filepath.Join(dir, ".good.LEFTOVER"), "of a crash")
	if err := os.Mkdir(filepath.Join(dir, "folder.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "linked.json")); err != nil {
		t.Fatal(err)
	}
	all, err := b.List(ctx)
	if len(all) != 1 || all[0].Name != "good" {
		t.Errorf("%v", all)
	}
	for _, name := range []string{"edited", "renamed", "empty", "twice", "future", "more", "large", "folder", "linked"} {
		if _, err := b.Get(ctx, name); err == nil {
			t.Errorf("%s was taken", name)
		}
		if !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("List does not tell of %s: %v", name, err)
		}
	}
	if tools := b.Tools(nil, "s"); len(tools) != 2 {
		t.Errorf("%d tools", len(tools))
	}
	if err := b.Remove(ctx, "edited"); err != nil {
		t.Errorf("it cannot be removed: %v", err)
	}
	if err := b.Remove(ctx, "linked"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(outside); err != nil {
		t.Errorf("what a link led to: %v", err)
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(""); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
		t.Error(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file); err == nil {
		t.Error("a file was taken")
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); cubby.CodeOf(err) != cubby.CodePermissionDenied || !strings.Contains(err.Error(), "chmod o-w") {
		t.Error(err)
	}
}

// Of several that keep other code under one name at once, one does.
func TestKeepOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tools")
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		kept []Kept
	)
	for i := range 8 {
		wg.Go(func() {
			b, err := Open(dir) // as another process does
			if err != nil {
				t.Error(err)
				return
			}
			k := sample("add")
			k.Code += fmt.Sprint(" + ", i)
			if k, err = b.Keep(context.Background(), k); err == nil {
				mu.Lock()
				kept = append(kept, k)
				mu.Unlock()
			} else if cubby.CodeOf(err) != cubby.CodeConflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	b, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := b.Get(t.Context(), "add")
	if len(kept) != 1 || err != nil || got.Hash != kept[0].Hash {
		t.Errorf("%d were kept; %v, %v", len(kept), got, err)
	}
	if entries, err := os.ReadDir(dir); len(entries) != 1 || err != nil {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestParse(t *testing.T) {
	for _, answer := range []string{``, `{}`, `{"value":}`, `[]`, `{"value":1} x`, strings.Repeat("[", 20_000)} {
		if _, err := parse(answer); err == nil {
			t.Errorf("%.20q was taken", answer)
		}
	}
	_, err := parse(`{"error":{"type":"E\u001b[31m\nX","message":"` + strings.Repeat("m", 5000) + `","line":-4}}`)
	if err == nil || !strings.HasPrefix(err.Error(), "E X: mmm") || len(err.Error()) > 3000 {
		t.Errorf("%v", err)
	}
}

func FuzzDecode(f *testing.F) {
	k, _, err := sample("add").normalized()
	if err != nil {
		f.Fatal(err)
	}
	k.Hash = k.hash()
	good, err := json.Marshal(file{version, k})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1,"schema":{"type":"object","properties":{"a":null}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := decode(text)
		if err == nil && (k.hash() != k.Hash || !toolName.MatchString(k.Name)) {
			t.Errorf("%+v", k)
		}
	})
}

// Schemas are a model's.
func FuzzSchema(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}`, `{"a":1}`)
	f.Add(`{"type":"object","patternProperties":{"^a":{"enum":[1,null]}},"unevaluatedProperties":false}`, `{"a":null}`)
	f.Add(`{"type":"object","properties":{"a":null}}`, `{}`)
	f.Add(`{"type":"object","dependentSchemas":{"a":{"contains":{},"minContains":2}},"not":{},"if":true}`, `{"a":[1]}`)
	f.Fuzz(func(t *testing.T, schema, args string) {
		s, err := resolve(json.RawMessage(schema))
		if err != nil {
			return
		}
		if out, err := arguments(s, json.RawMessage(args)); err == nil && !json.Valid(out) {
			t.Errorf("%q", out)
		}
	})
}

func FuzzWish(f *testing.F) {
	f.Add([]byte(`{"name":"a","schema":"{}","example":{"x":1}}`))
	f.Add([]byte(`"{\"name\":\"a\"}"`))
	f.Fuzz(func(t *testing.T, args []byte) {
		k := &keeper{box: Memory()}
		if _, ok := k.Code(args); !ok {
			if _, err := k.Call(context.Background(), args); err == nil {
				t.Error("kept without code")
			}
		}
	})
}
