package validate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/agent/internal/source"
)

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, id string
		want        bool
	}{
		{"python.import.os", "python.import.os", true},
		{"python.import.os", "python.import.os.path", true},
		{"python.import.os", "python.import.ossaudiodev", false},
		{"python.import.os*", "python.import.ossaudiodev", true},
		{"python", "python.file.open.read", true},
		{"javascript.import.fs", "javascript.import.fs/promises", true},
		{"*", "bash.command.ls", true},
		{"*.import.*", "python.import.os", true},
		{"*.eval", "python.dynamic.eval", true},
		{"*.eval", "python.dynamic.evaluate", false},
		{"*os*path", "python.import.os.x.path", true},
		{"*a*b", "axbyb.c", true},
		{"python.import.os.path", "python.import.os", false},
		{"bash.command.[", "bash.command.[", true},
		{"bash.command.?", "bash.command.x", false},
	} {
		if got := matches(c.pattern, c.id); got != c.want {
			t.Errorf("%q, %q: %v", c.pattern, c.id, got)
		}
	}
	start := time.Now()
	matches(strings.Repeat("*a", 100), strings.Repeat("a", 100_000)+"b")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestParsePolicy(t *testing.T) {
	p, err := ParsePolicy([]byte(`
version: 1
name: ours
extends: production
max_chars: 300
default: review
rules:
  - match: python.import.requests
    decision: allow
    message: >
      requests is there
  - {match: ["bash.command.l*", bash.network.curl], decision: deny, remedy: none}
`))
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "ours" || p.MaxChars != 300 || p.Default != Review || p.Rules[0].Message != "requests is there" || len(p.Rules) != len(Production().Rules)+2 {
		t.Errorf("%+v", p)
	}
	for id, want := range map[string]Decision{
		"python.import.requests": Allow, "python.import.subprocess": Deny, "bash.command.ls": Deny, "bash.command.cat": Review,
	} {
		if got := p.decide(id).Decision; got != want {
			t.Errorf("%s: %s", id, got)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"", "empty"}, {"#", "empty"}, {"name: x", "version is missing"}, {"version: 2", "line 1: version is \"2\""}, {"- a", "line 1: a mapping"},
		{"version: 1\nrulez: []", `line 2: there is no field "rulez": the fields are version, name`},
		{"version: 1\nversion: 1", "twice"}, {"version: 1\nextends: loose", "development, production, strict"},
		{"version: 1\nmax_chars: -1", "line 2: max_chars"}, {"version: 1\nmax_chars: many", "line 2"}, {"version: 1\nmax_chars: 99999999", "line 2"},
		{"version: 1\ndefault: maybe", "line 2: default is \"maybe\": it must be allow, review or deny"},
		{"version: 1\nrules: {}", "line 2: rules must be a list"}, {"version: 1\nrules:\n - decision: deny", "line 3: the rule has no match"},
		{"version: 1\nrules:\n - match: python", "line 3: the rule has no decision"},
		{"version: 1\nrules:\n - match: python\n   decision: Deny", "line 4: decision"},
		{"version: 1\nrules:\n - match: []\n   decision: deny", "match is empty"},
		{"version: 1\nrules:\n - match: ''\n   decision: deny", "nothing is matched"},
		{"version: 1\nrules:\n - match:\n   - python\n   - typescript.import.x\n   decision: deny", "line 5: nothing is matched by \"typescript"},
		{"version: 1\nrules:\n - match: pyhton.import.os\n   decision: deny", "line 3: nothing is matched"},
		{"version: 1\nrules:\n - match: python\n   decision: deny\n   severity: high", "line 5: there is no field \"severity\""},
		{"version: 1\nrules:\n - match: python\n   decision: deny\n   message: [a]", "line 5: a text"},
		{"version: 1\n---\nversion: 1", "more than one document"}, {"version: 1\n bad", "line"},
		{"version: 1\nrules:\n - &a {match: python, decision: deny}\n - *a", "line 4"},
		{strings.Repeat("#", maxPolicyBytes+1), "bytes"},
		{"version: 1\nrules:\n" + strings.Repeat("- {match: python, decision: deny}\n", maxRules+1), "more than 1000 rules"},
		{"version: 1\nrules:\n - match: python." + strings.Repeat("x", 300) + "\n   decision: deny", "longer"},
	} {
		if _, err := ParsePolicy([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "validate: ") {
			t.Errorf("%.80q: %v", c.text, err)
		}
	}
}

func TestPresets(t *testing.T) {
	for _, name := range Presets() {
		if p, err := Preset(name); err != nil || p.Name != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Preset("../policies/strict"); err == nil || !strings.Contains(err.Error(), "development, production, strict") {
		t.Error(err)
	}
	// What each says of what code does, from the mildest to the strictest.
	for id, want := range map[string][3]Decision{
		"python.import.math":            {Allow, Allow, Allow},
		"python.import.pandas":          {Allow, Allow, Allow},
		"python.import.os.path":         {Allow, Allow, Deny},
		"python.import.subprocess":      {Allow, Deny, Deny},
		"python.process.os.system":      {Allow, Deny, Deny},
		"python.process.shell":          {Allow, Deny, Deny},
		"python.network.socket.socket":  {Allow, Deny, Deny},
		"python.native.ctypes.CDLL":     {Allow, Deny, Deny},
		"python.file.open.write":        {Allow, Allow, Deny},
		"python.dynamic.eval":           {Allow, Deny, Deny},
		"python.dynamic.getattr":        {Allow, Review, Deny},
		"python.dunder.__subclasses__":  {Allow, Deny, Deny},
		"python.magic.pip":              {Allow, Review, Deny},
		"javascript.import.fs":          {Allow, Allow, Deny},
		"javascript.import.util":        {Allow, Allow, Allow},
		"javascript.import.vm":          {Allow, Deny, Deny},
		"javascript.dynamic.eval":       {Allow, Deny, Deny},
		"javascript.network.fetch":      {Allow, Deny, Deny},
		"bash.command.ls":               {Allow, Allow, Allow},
		"bash.command.awk":              {Allow, Allow, Deny},
		"bash.network.curl":             {Allow, Deny, Deny},
		"bash.destructive.rm":           {Review, Deny, Deny},
		"bash.privilege.sudo":           {Review, Deny, Deny},
		"bash.dynamic.pipe-to-shell":    {Review, Deny, Deny},
		"bash.dynamic.command":          {Allow, Review, Deny},
		"bash.substitution":             {Allow, Allow, Allow},
		"unchecked.ruby":                {Allow, Review, Deny},
		"python.relative-import":        {Allow, Review, Deny},
		"javascript.native.WebAssembly": {Allow, Deny, Deny},
		"javascript.process.exit":       {Allow, Allow, Deny},
	} {
		for i, p := range []*Policy{Development(), Production(), Strict()} {
			if got := p.decide(id).Decision; got != want[i] {
				t.Errorf("%s says %s of %s", p.Name, got, id)
			}
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	for _, name := range Presets() {
		data, err := presets.ReadFile("policies/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("version: 1\nextends: strict\nrules: [{match: '*', decision: deny}]"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParsePolicy(data)
		if err != nil {
			return
		}
		if err := p.check(); err != nil {
			t.Error(err)
		}
		if d := p.decide("python.import.os").Decision; !slices.Contains([]Decision{Allow, Review, Deny}, d) {
			t.Errorf("decided %q", d)
		}
	})
}

func FuzzDecodeAnswer(f *testing.F) {
	f.Add([]byte(`{"errors":[{"type":"SyntaxError","message":"x","line":1,"column":2}],"facts":[],"cut":false}`), "x")
	f.Add([]byte(`{"facts":[{"kind":"use","name":"os.system","line":2,"column":1},{"kind":"shell","detail":"rm -r $(ls)","line":1}]}`), "a\nb")
	f.Add([]byte(`{"facts":[{"kind":"shell","detail":"eval \"eval 'rm -r x'\"","line":9}],"cut":true}`), "")
	f.Fuzz(func(t *testing.T, data []byte, code string) {
		a, err := decodeAnswer(data)
		if err != nil {
			return
		}
		v := &Validator{maxChars: DefaultMaxChars, checkers: map[string]Checker{"bash": &wordChecker{}}}
		s, err := v.sightings(t.Context(), source.New(code), a)
		if err != nil {
			t.Fatal(err)
		}
		for _, fact := range s.facts {
			if fact.Line < 0 || fact.Line > strings.Count(code, "\n")+1 || fact.ID == "" || fact.Message == "" {
				t.Errorf("%+v", fact)
			}
		}
	})
}
