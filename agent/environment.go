package agent

import (
	"context"
	"crypto/rand"
	_ "embed" // the code that looks
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// Bounds of the look into the sandbox.
const (
	environmentTime  = 20 * time.Second
	environmentTries = 3
	maxEnvironment   = 16 << 10 // bytes of its answer
)

//go:embed environment.py
var environmentCode string

// Packages and programs that a model is told of if they are there: those that
// models reach for. Names of packages are those of pip.
var (
	knownPackages = []string{
		"numpy", "pandas", "matplotlib", "scipy", "sympy", "seaborn", "plotly", "scikit-learn", "statsmodels", "networkx", "pillow",
		"opencv-python", "requests", "httpx", "beautifulsoup4", "lxml", "PyYAML", "openpyxl", "XlsxWriter", "python-docx", "python-pptx",
		"pypdf", "reportlab", "pyarrow", "polars", "duckdb", "SQLAlchemy", "jinja2", "nltk", "spacy", "torch", "tensorflow", "transformers",
		"xgboost", "lightgbm", "pytest",
	}
	knownPrograms = []string{"git", "gcc", "make", "jq", "curl", "sqlite3", "ffmpeg", "pandoc", "pdftotext", "convert", "gnuplot"}
)

// version is what a version may be in a prompt: the sandbox says it, so it must
// not be able to say anything else.
var version = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+!_~-]{0,39}$`)

// environment is what the sandbox has, for the model. It is found out once for an
// agent, whose sandboxes are all alike.
type environment struct {
	mu    sync.Mutex
	text  string
	known bool
	tries int
}

// WithEnvironment tells the model in these words what the sandbox has: versions,
// packages. Without this option the agent looks by itself before the first
// question, by a few lines of Python that neither validator nor approver see and
// that no audit log lists; an empty text tells nothing and does not look.
func WithEnvironment(text string) Option {
	return func(a *Agent) { a.environment.text, a.environment.known = text, true }
}

// describe returns what the sandbox has; nothing if that cannot be found out: the
// run of the model's own code then tells what is wrong. Sessions that begin at the
// same time may each look.
func (e *environment) describe(ctx context.Context, executor codeexec.CodeExecutor, executionID string) string {
	e.mu.Lock()
	text, known := e.text, e.known || e.tries >= environmentTries
	if !known {
		e.tries++
	}
	e.mu.Unlock()
	if known {
		return text
	}
	found, ok := look(ctx, executor, executionID)
	if !ok {
		return ""
	}
	text = found.prompt(hasNetwork(executor))
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text, e.known = text, true
	return text
}

// inventory is what the look found.
type inventory struct {
	Python   string            `json:"python"`
	Node     string            `json:"node"`
	Packages map[string]string `json:"packages"` // versions
	Programs []string          `json:"programs"`
}

// look runs the code that looks, under the session's id: the kernel that it starts
// is the one that the model's code needs next.
func look(ctx context.Context, executor codeexec.CodeExecutor, executionID string) (inventory, bool) {
	languages := executor.Languages()
	if !slices.Contains(languages, codeexec.Python) {
		return inventory{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, environmentTime)
	defer cancel()
	marker := "cubby-environment-" + rand.Text() + " "
	node := "False"
	if slices.Contains(languages, codeexec.JavaScript) {
		node = "True"
	}
	cell := fmt.Sprintf("%s\n_cubby_environment(%q, %s, %s, %s)\ndel _cubby_environment\n", environmentCode, marker, list(knownPackages), list(knownPrograms), node)
	result, err := executor.ExecuteCode(ctx, codeexec.CodeExecutionInput{
		CodeBlocks: []codeexec.CodeBlock{{Language: codeexec.Python, Code: cell}}, ExecutionID: executionID,
	})
	if err != nil {
		return inventory{}, false
	}
	out := result.Output
	if len(result.Blocks) > 0 {
		out = result.Blocks[0].Stdout
	}
	for line := range strings.Lines(out) {
		if rest, ok := strings.CutPrefix(line, marker); ok && len(rest) <= maxEnvironment {
			var found inventory
			return found, json.Unmarshal([]byte(rest), &found) == nil
		}
	}
	return inventory{}, false
}

// list is a list of strings in Python, in which JSON's are literals.
func list(names []string) string {
	b, _ := json.Marshal(names) // strings of ours
	return string(b)
}

// prompt is what the model is told: names of ours, and versions.
func (i inventory) prompt(network bool) string {
	if !version.MatchString(i.Python) {
		return ""
	}
	var packages []string
	for _, name := range knownPackages {
		if v := i.Packages[name]; version.MatchString(v) {
			packages = append(packages, name+" "+v)
		}
	}
	text := "The sandbox has Python " + i.Python
	if len(packages) > 0 {
		text += " with " + strings.Join(packages, ", ")
	} else {
		text += " with its standard library only"
	}
	if version.MatchString(i.Node) {
		text += "; Node.js " + i.Node
	}
	var programs []string
	for _, name := range knownPrograms {
		if slices.Contains(i.Programs, name) {
			programs = append(programs, name)
		}
	}
	if len(programs) > 0 {
		text += "; the programs " + strings.Join(programs, ", ")
	}
	if network {
		return text + ". Other well-known packages are not there: where the network lets pip install them, they may be; else do without them."
	}
	return text + ". Other well-known packages are not there and cannot be installed: do without them, " +
		"with the standard library and what is named here, or say in your answer what could not be done."
}
