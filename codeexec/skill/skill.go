// Package skill gives agents skills: folders with a SKILL.md that says what the
// skill is for and how it is used, and scripts and documents beside it.
//
//	repo, err := skill.NewFolders("/srv/skills")
//	tools, err := skill.NewTools(skill.Config{Repository: repo, Engine: engine, ExecutionID: session})
//	defer tools.Close()
//	prompt += tools.Overview()
//	for _, tool := range tools.Definitions() { … } // hand them to the model
//
// A SKILL.md begins with YAML between lines of three dashes; name and description
// are what counts:
//
//	---
//	name: csv-report
//	description: Turns a CSV file into a report. Use it for questions about tables.
//	---
//	# How to
//	Run `python scripts/report.py INPUT` …
//
// The folders may come from anybody: names, sizes, links and YAML are hostile.
// Their scripts run in a workspace of the engine and nowhere else.
package skill

import (
	"errors"
	"fmt"

	"github.com/cubby-sandbox/cubby"
)

// File is what makes a folder a skill.
const File = "SKILL.md"

// Bounds.
const (
	MaxFile        = 1 << 20   // bytes of a SKILL.md
	MaxDoc         = 1 << 20   // bytes of a document
	MaxDocs        = 200       // documents of a skill
	MaxFolder      = 256 << 20 // bytes of a skill with all its files
	maxFiles       = 10_000    // files of a skill
	maxSkills      = 1000
	maxName        = 64
	maxDescription = 1024 // characters
	maxFront       = 64 << 10
)

// Summary is what an agent knows of a skill before it loads it.
type Summary struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// Skill is a skill that was loaded.
type Skill struct {
	Summary
	License       string            `json:"license,omitempty"`
	Compatibility string            `json:"compatibility,omitempty"`
	AllowedTools  []string          `json:"allowed_tools,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	Body          string            `json:"body"` // Markdown
	// Docs are its documents: text files beside SKILL.md, by their paths below the
	// folder, sorted; at most MaxDocs.
	Docs []string `json:"docs,omitempty"`
}

// Repository is where skills are. Implementations are safe for concurrent use;
// their errors are *cubby.Error: not_found for what is not there,
// invalid_argument for what cannot be a name.
type Repository interface {
	// Summaries lists the skills by name.
	Summaries() []Summary
	// Get loads a skill.
	Get(name string) (*Skill, error)
	// Doc reads a document that Get listed.
	Doc(name, path string) (string, error)
	// Path is the skill's folder on this machine.
	Path(name string) (string, error)
}

// Problem is a folder that is no skill although it looks like one.
type Problem struct {
	Path string
	Err  error
}

// String returns both.
func (p Problem) String() string { return p.Path + ": " + p.Err.Error() }

// checkName refuses what cannot be a skill's name: it becomes the name of a
// folder, and a word of a prompt.
func checkName(name string) error {
	bad := name == "" || len(name) > maxName
	for i, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		bad = bad || !letter && (i == 0 || r != '-' && r != '_' && r != '.')
	}
	if bad {
		return &cubby.Error{
			Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("%.100q is no name of a skill", name),
			Hint: "letters, digits, and - _ . after the first; at most 64",
		}
	}
	return nil
}

func notFound(format string, args ...any) error {
	return &cubby.Error{Code: cubby.CodeNotFound, Err: fmt.Errorf(format, args...)}
}

func invalid(format string, args ...any) error {
	return &cubby.Error{Code: cubby.CodeInvalidArgument, Err: fmt.Errorf(format, args...)}
}

var errNoText = errors.New("it is not UTF-8 text")
