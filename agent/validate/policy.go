package validate

import (
	"cmp"
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// DefaultMaxChars bounds the length of code, in characters, where neither
// [Options] nor a policy names a bound.
const DefaultMaxChars = 10_000

// LargestMaxChars is the largest bound there is: parsers follow nesting with
// their stacks.
const LargestMaxChars = 50_000

// Policy says what is to become of code by what it does. Its rules are tried from
// the first to the last, as a firewall's: the first that matches decides, and
// Default decides where none does. The zero value allows everything.
//
// What code does is told as words with dots between them:
//
//	python.import.os.path            a module, and a name taken out of one
//	python.dynamic.eval              code that is made while it runs; also getattr with a computed name
//	python.dunder.__globals__        the insides of objects
//	python.file.open.write           .read, .write, or open alone if it cannot be told; file.shutil.rmtree
//	python.process.os.system         other programs; process.shell is a line with "!"
//	python.network.urllib.request.urlopen
//	python.native.ctypes.CDLL        memory and machine code
//	python.magic.pip                 lines with "%"
//	javascript.import.child_process  also TypeScript; "node:" is left out
//	javascript.dynamic.eval          Function, constructor, import or require of a computed name
//	javascript.process.kill          what the object process can do
//	javascript.network.fetch
//	javascript.native.WebAssembly
//	bash.command.curl                every command by its name, those behind sudo, env, xargs … too
//	bash.network.curl                a command or redirection that uses the network
//	bash.destructive.rm              rm -r and -f, mkfs, dd to a device, a fork bomb …
//	bash.privilege.sudo              other users and their rights
//	bash.dynamic.eval                commands that are made while it runs
//	bash.substitution                $(…) and <(…)
//	unchecked.ruby                   a language that cannot be looked at here
//
// That code cannot be looked at is always reported. If a rule that does not allow
// is about its language, and none about unchecked, it is to be reviewed.
type Policy struct {
	Name string
	// MaxChars bounds the length of code, in characters; 0 is [DefaultMaxChars].
	MaxChars int
	Default  Decision // "" is Allow
	Rules    []Rule
}

// Rule decides about what its patterns match.
type Rule struct {
	// Match are patterns of which one must match. A star is any text, dots
	// included. A pattern is also the beginning of more words: python.import.os
	// matches python.import.os.path, and not python.import.ossaudiodev.
	Match    []string
	Decision Decision
	// Message and Remedy are told instead of the built-in ones. What a rule allows
	// is reported only if the rule has a message, or is about unchecked.
	Message, Remedy string
}

//go:embed policies/*.yaml
var presets embed.FS

// Development allows what people do on their own machine, and asks for a review
// of what destroys data or changes users.
func Development() *Policy { return mustPreset("development") }

// Production is for code that runs unattended: data comes from and goes to files
// and nothing else. It denies processes, network, machine code and the insides of
// objects.
func Production() *Policy { return mustPreset("production") }

// Strict is for computations: it denies everything but a list of harmless modules
// and commands.
func Strict() *Policy { return mustPreset("strict") }

// Presets are the names that [Preset] knows, from the mildest on.
func Presets() []string { return []string{"development", "production", "strict"} }

// Preset returns the policy of that name. The caller may change it.
func Preset(name string) (*Policy, error) {
	if !slices.Contains(Presets(), name) {
		return nil, fmt.Errorf("validate: no policy is called %q: those that are built in are %s", name, strings.Join(Presets(), ", "))
	}
	data, err := presets.ReadFile(path.Join("policies", name+".yaml"))
	if err != nil {
		return nil, err
	}
	return ParsePolicy(data)
}

// mustPreset is for names that tests have parsed.
func mustPreset(name string) *Policy {
	p, err := Preset(name)
	if err != nil {
		panic(err)
	}
	return p
}

// check says what is wrong with a policy.
func (p *Policy) check() error {
	if p.MaxChars < 0 || p.MaxChars > LargestMaxChars {
		return fmt.Errorf("max_chars must be from 1 to %d", LargestMaxChars)
	}
	if p.Default != "" && rank(p.Default) < 0 {
		return errDecision("default", p.Default)
	}
	for i, r := range p.Rules {
		if len(r.Match) == 0 {
			return fmt.Errorf("rule %d has no match", i+1)
		}
		for _, pattern := range r.Match {
			if err := checkPattern(pattern); err != nil {
				return fmt.Errorf("rule %d: %w", i+1, err)
			}
		}
		if rank(r.Decision) < 0 {
			return fmt.Errorf("rule %d: %w", i+1, errDecision("decision", r.Decision))
		}
	}
	return nil
}

func errDecision(field string, d Decision) error {
	return fmt.Errorf("%s is %q: it must be allow, review or deny", field, d)
}

// checkPattern refuses what would never match.
func checkPattern(pattern string) error {
	first, _, _ := strings.Cut(pattern, ".")
	if strings.Contains(first, "*") {
		return nil
	}
	switch first {
	case "python", "javascript", "bash", "unchecked":
		return nil
	}
	return fmt.Errorf("nothing is matched by %q: patterns begin with python, javascript (also for TypeScript), bash, unchecked or *", pattern)
}

// rank orders decisions; it is negative for what is none.
func rank(d Decision) int {
	return slices.Index([]Decision{Allow, Review, Deny}, d)
}

func strictest(a, b Decision) Decision {
	if rank(b) > rank(a) {
		return b
	}
	return a
}

// decide returns the rule that decides about id. Where the policy has rules that
// restrict a language and none about code in it that cannot be looked at, nobody
// can say that such code is allowed: a person should look at it.
func (p *Policy) decide(id string) Rule {
	for _, r := range p.Rules {
		for _, pattern := range r.Match {
			if matches(pattern, id) {
				return r
			}
		}
	}
	rule := Rule{Decision: cmp.Or(p.Default, Allow)}
	if name, ok := strings.CutPrefix(id, "unchecked."); ok && p.restricts(name) {
		rule.Decision = strictest(rule.Decision, Review)
	}
	return rule
}

// restricts reports whether a rule that does not allow could be about a language.
func (p *Policy) restricts(language string) bool {
	word := firstWords[language]
	if "unchecked."+language == uncheckedRest {
		word = firstWords[codeexec.Python]
	}
	return slices.ContainsFunc(p.Rules, func(r Rule) bool {
		return r.Decision != Allow && slices.ContainsFunc(r.Match, func(pattern string) bool {
			first, _, _ := strings.Cut(pattern, ".")
			return word != "" && (first == word || strings.Contains(first, "*"))
		})
	})
}

// matches is linear in the product of the lengths at worst: after a star, only
// the last one is ever tried again.
func matches(pattern, id string) bool {
	i, j, star, from := 0, 0, -1, 0
	for j < len(id) {
		switch {
		case i < len(pattern) && pattern[i] == '*':
			star, from = i, j
			i++
		case i < len(pattern) && pattern[i] == id[j]:
			i++
			j++
		case i == len(pattern) && i > 0 && (id[j] == '.' || id[j] == '/'):
			return true // id goes on with further words
		case star >= 0:
			from++
			i, j = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(pattern[i:], "*") == ""
}
