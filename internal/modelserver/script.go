package modelserver

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Script is what a model that is none says. Its steps are served in order, one
// for each reply: how far a conversation is, its messages tell.
type Script struct {
	Name string `yaml:"-"`
	// About says what the script shows, Question what it is to be asked, Files
	// (names, below the script's folder or the caller's) what with, Mode whether
	// it writes "blocks" or calls "tools". They are for the reader.
	About    string   `yaml:"about"`
	Question string   `yaml:"question"`
	Files    []string `yaml:"files"`
	Mode     string   `yaml:"mode"`
	Steps    []Step   `yaml:"steps"`
}

// Step is a reply and what it is a reply to. A pattern is a text that must occur,
// or a regular expression between slashes, such as "/total: \d+/".
type Step struct {
	// When is a pattern: the step is passed over unless what is to be answered
	// holds it.
	When string `yaml:"when"`
	// Repeat stays at this step until When no longer holds; without When, for good.
	Repeat bool `yaml:"repeat"`
	// Expect are patterns that must occur in what is to be answered, Reject ones
	// that must not, ExpectSystem ones that must in the system's message, and
	// Images is how many pictures there must be, if it is not 0: a request where
	// it is otherwise is refused with 400. This keeps a script from telling what
	// did not happen.
	Expect       []string `yaml:"expect"`
	Reject       []string `yaml:"reject"`
	ExpectSystem []string `yaml:"expect_system"`
	Images       int      `yaml:"images"`

	Reply `yaml:",inline"`
}

// Reply is what the model says.
type Reply struct {
	Thinking string `yaml:"thinking"`
	Text     string `yaml:"text"`
	Calls    []Call `yaml:"calls"`
	// Usage is estimated where it is zero.
	Usage Usage `yaml:"usage"`
	// Stop is "end", "tools", "length" or "refused"; if it is empty, one of the
	// first two.
	Stop string `yaml:"stop"`
	// Fault is served instead, or in the middle.
	Fault *Fault `yaml:"fault"`
	// Refuse, if set, answers with 400 and this message.
	Refuse string `yaml:"refuse"`
}

// Usage counts tokens.
type Usage struct {
	Input  int `yaml:"input"`
	Output int `yaml:"output"`
}

// Fault is a misfortune. With Status, Body or ContextTooLong there is no reply;
// the others befall the reply on its way.
type Fault struct {
	// Times is how often it befalls the same conversation before the reply comes
	// whole; 0 is always.
	Times int `yaml:"times"`

	// Delay passes before anything is sent.
	Delay time.Duration `yaml:"delay"`
	// Status is answered with the provider's error of that status, Message in it
	// if it is set.
	Status  int    `yaml:"status"`
	Message string `yaml:"message"`
	// RetryAfter is sent as that header: seconds, or a date. RetryAfterMS
	// is sent as retry-after-ms.
	RetryAfter   string `yaml:"retry_after"`
	RetryAfterMS int    `yaml:"retry_after_ms"`
	// ContextTooLong is the provider's error for too long a conversation.
	ContextTooLong bool `yaml:"context_too_long"`
	// Body is sent in place of the provider's JSON, as HTML of a proxy in between,
	// with Status or 200.
	Body string `yaml:"body"`

	// After this many bytes of the body CutAfter breaks the connection, EndAfter
	// ends the body as if it were whole, ErrorAfter sends the provider's event of
	// an error and ends, and HangAfter sends no more until the client leaves.
	CutAfter   *int `yaml:"cut_after"`
	EndAfter   *int `yaml:"end_after"`
	ErrorAfter *int `yaml:"error_after"`
	HangAfter  *int `yaml:"hang_after"`
	// Hang is HangAfter 0, before the headers.
	Hang bool `yaml:"hang"`
}

// Say returns a script that says these texts, a turn each.
func Say(texts ...string) *Script {
	s := &Script{Name: "say"}
	for _, text := range texts {
		s.Steps = append(s.Steps, Step{Reply: Reply{Text: text}})
	}
	return s
}

//go:embed scripts/*.yaml
var embedded embed.FS

// Scripts lists the scripts that come with the package.
func Scripts() []string {
	names, _ := fs.Glob(embedded, "scripts/*.yaml") // the pattern is well formed
	for i, name := range names {
		names[i] = strings.TrimSuffix(strings.TrimPrefix(name, "scripts/"), ".yaml")
	}
	return names
}

// Load returns a script that comes with the package, or that of a file.
func Load(name string) (*Script, error) {
	data, err := embedded.ReadFile("scripts/" + name + ".yaml")
	if err != nil {
		if data, err = os.ReadFile(name); err != nil {
			return nil, fmt.Errorf("modelserver: no script %q: give a file's path, or one of %s", name, strings.Join(Scripts(), ", "))
		}
	}
	return Parse(name, data)
}

// Parse reads a script in YAML. Fields that it does not know are errors.
func Parse(name string, data []byte) (*Script, error) {
	s := &Script{Name: name}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(s); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("modelserver: script %s: %w", name, err)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Script) check() error {
	fail := func(i int, format string, args ...any) error {
		return fmt.Errorf("modelserver: script %s: step %d: %s", s.Name, i+1, fmt.Sprintf(format, args...))
	}
	if len(s.Steps) == 0 {
		return fmt.Errorf("modelserver: script %s: it has no steps", s.Name)
	}
	if s.Mode != "" && s.Mode != "blocks" && s.Mode != "tools" {
		return fmt.Errorf("modelserver: script %s: mode %q: say blocks or tools", s.Name, s.Mode)
	}
	for i, step := range s.Steps {
		for _, p := range append(append(append([]string{step.When}, step.Expect...), step.Reject...), step.ExpectSystem...) {
			if source, ok := expression(p); ok {
				if _, err := regexp.Compile(source); err != nil {
					return fail(i, "%v", err)
				}
			}
		}
		for _, call := range step.Calls {
			if call.Name == "" {
				return fail(i, "a call has no name")
			}
			if _, err := json.Marshal(call.Arguments); err != nil {
				return fail(i, "the arguments of %s are no JSON: %v", call.Name, err)
			}
		}
		if !validStop(step.Stop) {
			return fail(i, "stop %q: say end, tools, length or refused", step.Stop)
		}
		if step.Text == "" && step.Thinking == "" && len(step.Calls) == 0 && step.Fault == nil && step.Refuse == "" && step.Stop == "" {
			return fail(i, "it says nothing; a reply without text has stop: end")
		}
	}
	return nil
}

func validStop(stop string) bool {
	switch stop {
	case "", "end", "tools", "length", "refused":
		return true
	}
	return false
}

// expression returns the regular expression that a pattern is, if it is one.
func expression(pattern string) (string, bool) {
	if len(pattern) > 2 && pattern[0] == '/' && pattern[len(pattern)-1] == '/' {
		return pattern[1 : len(pattern)-1], true
	}
	return "", false
}

func matches(pattern, text string) bool {
	if source, ok := expression(pattern); ok {
		found, _ := regexp.MatchString(source, text) // checked before
		return found
	}
	return strings.Contains(text, pattern)
}

// reply finds the step for a conversation by walking over what came before, and
// returns what it says.
func (s *Script) reply(c Conversation) Reply {
	prompts := c.prompts()
	at, found := 0, 0
	for _, prompt := range prompts {
		for at < len(s.Steps) && s.Steps[at].When != "" && !matches(s.Steps[at].When, prompt) {
			at++
		}
		if found = at; at == len(s.Steps) {
			return Reply{Refuse: fmt.Sprintf("script %s has no step for turn %d; what is to be answered: %s", s.Name, len(prompts), excerpt(c.Last()))}
		}
		if !s.Steps[at].Repeat {
			at++
		}
	}
	step := s.Steps[found]
	if reason := step.unmet(c); reason != "" {
		return Reply{Refuse: fmt.Sprintf("script %s, step %d: %s", s.Name, found+1, reason)}
	}
	return step.Reply
}

// unmet says which expectation is not met.
func (s Step) unmet(c Conversation) string {
	last := c.Last()
	for _, p := range s.Expect {
		if !matches(p, last) {
			return fmt.Sprintf("expected %q in what is to be answered, which is: %s", p, excerpt(last))
		}
	}
	for _, p := range s.Reject {
		if matches(p, last) {
			return fmt.Sprintf("%q must not be in what is to be answered, which is: %s", p, excerpt(last))
		}
	}
	for _, p := range s.ExpectSystem {
		if !matches(p, c.System) {
			return fmt.Sprintf("expected %q in the system's message, which is: %s", p, excerpt(c.System))
		}
	}
	if n := len(c.Images()); s.Images != 0 && n != s.Images {
		return fmt.Sprintf("expected %d pictures, got %d", s.Images, n)
	}
	return ""
}

// excerpt keeps a message readable.
func excerpt(text string) string {
	const most = 2000
	if len(text) > most {
		text = text[:most/2] + " […] " + text[len(text)-most/2:]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
