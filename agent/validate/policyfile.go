package validate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of a policy file.
const (
	maxPolicyBytes = 256 << 10
	maxRules       = 1000
	maxPatterns    = 5000
	maxPatternLen  = 200
)

// ParsePolicy reads a policy in YAML. Fields it does not know are refused, with
// the line, since a rule that is misspelt protects nothing.
//
//	version: 1             # must be there
//	name: ours
//	extends: production    # a preset, whose rules come after these
//	max_chars: 20000       # else the preset's, else 10000
//	default: allow         # allow, review or deny; else the preset's, else allow
//	rules:                 # the first that matches decides; see [Policy]
//	  - match: python.import.requests
//	    decision: deny
//	    message: the sandbox has no network
//	    remedy: read the file that you were given
//	  - match: [bash.command.ls, bash.command.cat]
//	    decision: allow
func ParsePolicy(data []byte) (*Policy, error) {
	if len(data) > maxPolicyBytes {
		return nil, fmt.Errorf("validate: the policy has %d bytes: at most %d are read", len(data), maxPolicyBytes)
	}
	p, err := parsePolicy(data)
	if err != nil {
		return nil, fmt.Errorf("validate: policy: %w", err)
	}
	return p, nil
}

func parsePolicy(data []byte) (*Policy, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty: begin with \"version: 1\"")
	} else if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var more yaml.Node
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one document: put all rules into one")
	}
	if len(doc.Content) != 1 {
		return nil, errors.New("it is empty: begin with \"version: 1\"")
	}
	p, err := readPolicy(doc.Content[0])
	if err != nil {
		return nil, err
	}
	return p, p.check()
}

func readPolicy(n *yaml.Node) (*Policy, error) {
	f, err := fields(n, "version", "name", "extends", "max_chars", "default", "rules")
	if err != nil {
		return nil, err
	}
	switch v := f["version"]; {
	case v == nil:
		return nil, errors.New("version is missing: begin with \"version: 1\"")
	case v.Value != "1":
		return nil, at(v, "version is %q: this program reads version 1", v.Value)
	}
	p := &Policy{}
	if v := f["extends"]; v != nil {
		base, err := Preset(v.Value)
		if err != nil {
			return nil, at(v, "%s", strings.TrimPrefix(err.Error(), "validate: "))
		}
		p = base
		p.Name = ""
	}
	if v := f["name"]; v != nil {
		if p.Name, err = text(v); err != nil {
			return nil, err
		}
	}
	if v := f["max_chars"]; v != nil {
		if p.MaxChars, err = strconv.Atoi(v.Value); err != nil || p.MaxChars < 1 || p.MaxChars > LargestMaxChars {
			return nil, at(v, "max_chars is %q: it must be a number from 1 to %d", v.Value, LargestMaxChars)
		}
	}
	if v := f["default"]; v != nil {
		if p.Default, err = decision(v, "default"); err != nil {
			return nil, err
		}
	}
	rules, err := readRules(f["rules"])
	if err != nil {
		return nil, err
	}
	p.Rules = append(rules, p.Rules...)
	return p, nil
}

func readRules(n *yaml.Node) ([]Rule, error) {
	if n == nil {
		return nil, nil
	}
	if n.Kind != yaml.SequenceNode {
		return nil, at(n, "rules must be a list")
	}
	if len(n.Content) > maxRules {
		return nil, at(n, "there are more than %d rules", maxRules)
	}
	var rules []Rule
	patterns := 0
	for _, item := range n.Content {
		f, err := fields(item, "match", "decision", "message", "remedy")
		if err != nil {
			return nil, err
		}
		var r Rule
		if r.Match, err = readPatterns(item, f["match"]); err != nil {
			return nil, err
		}
		if patterns += len(r.Match); patterns > maxPatterns {
			return nil, at(item, "there are more than %d patterns", maxPatterns)
		}
		if f["decision"] == nil {
			return nil, at(item, "the rule has no decision: allow, review or deny")
		}
		if r.Decision, err = decision(f["decision"], "decision"); err != nil {
			return nil, err
		}
		for name, into := range map[string]*string{"message": &r.Message, "remedy": &r.Remedy} {
			if v := f[name]; v != nil {
				if *into, err = text(v); err != nil {
					return nil, err
				}
			}
		}
		rules = append(rules, r)
	}
	return rules, nil
}

func readPatterns(rule, n *yaml.Node) ([]string, error) {
	if n == nil {
		return nil, at(rule, "the rule has no match")
	}
	nodes := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		nodes = n.Content
	}
	var patterns []string
	for _, v := range nodes {
		pattern, err := text(v)
		if err != nil {
			return nil, err
		}
		if len(pattern) > maxPatternLen {
			return nil, at(v, "the pattern is longer than %d bytes", maxPatternLen)
		}
		if err := checkPattern(pattern); err != nil {
			return nil, at(v, "%v", err)
		}
		patterns = append(patterns, pattern)
	}
	if len(patterns) == 0 {
		return nil, at(n, "match is empty")
	}
	return patterns, nil
}

// fields returns the values of a mapping that has no others than those.
func fields(n *yaml.Node, known ...string) (map[string]*yaml.Node, error) {
	if n.Kind != yaml.MappingNode {
		return nil, at(n, "a mapping with %s is expected here", strings.Join(known, ", "))
	}
	values := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch _, twice := values[key.Value]; {
		case twice:
			return nil, at(key, "%s is there twice", key.Value)
		case !slices.Contains(known, key.Value):
			return nil, at(key, "there is no field %q: the fields are %s", key.Value, strings.Join(known, ", "))
		}
		values[key.Value] = value
	}
	return values, nil
}

// text returns a line or some.
func text(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return "", at(n, "a text is expected here")
	}
	return strings.TrimSpace(n.Value), nil
}

func decision(n *yaml.Node, field string) (Decision, error) {
	d := Decision(n.Value)
	if n.Kind != yaml.ScalarNode || rank(d) < 0 {
		return "", at(n, "%v", errDecision(field, d))
	}
	return d, nil
}

func at(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("line %d: %s", n.Line, fmt.Sprintf(format, args...))
}
