package skill

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

// Parse reads a SKILL.md. A file without front matter is a body whose first line
// of text is the description; the name is then empty, as it is where the front
// matter names none. Front matter that is not quite YAML, such as a description
// with a colon in it, is read line by line. Docs are not set.
func Parse(b []byte) (*Skill, error) {
	if len(b) > MaxFile {
		return nil, fmt.Errorf("more than %d bytes", MaxFile)
	}
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		return nil, errNoText
	}
	text := strings.ReplaceAll(strings.TrimPrefix(string(b), "\uFEFF"), "\r\n", "\n")
	front, body, err := split(text)
	if err != nil {
		return nil, err
	}
	var f frontMatter
	if front != "" {
		if f, err = parseFront(front); err != nil {
			return nil, err
		}
	}
	s := &Skill{
		Summary: Summary{Name: strings.TrimSpace(f.Name), Description: oneLine(f.Description, maxDescription)},
		License: oneLine(f.License, 200), Compatibility: oneLine(f.Compatibility, 500), AllowedTools: f.AllowedTools, Body: strings.Trim(body, "\n"),
	}
	if s.Name != "" {
		if err := checkName(s.Name); err != nil {
			return nil, err
		}
	}
	for key, value := range f.Metadata {
		if s.Metadata == nil {
			s.Metadata = map[string]string{}
		}
		if value.Kind == yaml.ScalarNode && len(s.Metadata) < 50 {
			s.Metadata[oneLine(key, 100)] = oneLine(value.Value, 500)
		}
	}
	if s.Description == "" {
		s.Description = firstText(s.Body)
	}
	return s, nil
}

type frontMatter struct {
	Name          string               `yaml:"name"`
	Description   string               `yaml:"description"`
	License       string               `yaml:"license"`
	Compatibility string               `yaml:"compatibility"`
	AllowedTools  toolList             `yaml:"allowed-tools"`
	Metadata      map[string]yaml.Node `yaml:"metadata"`
}

// toolList is a list, or words with blanks or commas between them.
type toolList []string

// UnmarshalYAML implements [yaml.Unmarshaler].
func (l *toolList) UnmarshalYAML(n *yaml.Node) error {
	var list []string
	if n.Kind == yaml.ScalarNode {
		list = strings.FieldsFunc(n.Value, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' || r == '\t' })
	} else if err := n.Decode(&list); err != nil {
		return err
	}
	for _, tool := range list {
		if tool = oneLine(tool, 100); tool != "" && len(*l) < 100 {
			*l = append(*l, tool)
		}
	}
	return nil
}

// split takes the front matter off.
func split(text string) (front, body string, err error) {
	first, rest, _ := strings.Cut(text, "\n")
	if strings.TrimRight(first, " \t") != "---" {
		return "", text, nil
	}
	for at := 0; at < len(rest); {
		line, _, more := strings.Cut(rest[at:], "\n")
		next := at + len(line)
		if more {
			next++
		}
		if end := strings.TrimRight(line, " \t"); end == "---" || end == "..." {
			if at > maxFront {
				break
			}
			return rest[:at], rest[next:], nil
		}
		at = next
	}
	if len(rest) > maxFront {
		return "", "", fmt.Errorf("the front matter does not end within %d bytes", maxFront)
	}
	return "", "", errors.New("the front matter does not end: a line of three dashes is missing")
}

func parseFront(front string) (f frontMatter, err error) {
	if err = decode(front, &f); err == nil {
		return f, nil
	}
	// Line by line, as far as lines say what they are.
	loose := frontMatter{}
	for line := range strings.Lines(front) {
		key, value, ok := strings.Cut(strings.TrimRight(line, "\n"), ":")
		value = strings.TrimSpace(value)
		if len(value) > 1 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
			value = value[1 : len(value)-1]
		}
		switch {
		case !ok || value == "":
		case key == "name":
			loose.Name = value
		case key == "description" && !strings.HasPrefix(value, "|") && !strings.HasPrefix(value, ">"):
			loose.Description = value
		}
	}
	if loose.Name != "" && loose.Description != "" {
		return loose, nil
	}
	return frontMatter{}, fmt.Errorf("the front matter is not YAML: %s", oneLine(err.Error(), 300))
}

// decode keeps the process alive whatever the YAML does to its parser.
func decode(front string, into *frontMatter) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	return yaml.Unmarshal([]byte(front), into)
}

// firstText is the first line that is no heading.
func firstText(body string) string {
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "```") {
			return oneLine(line, 200)
		}
	}
	return ""
}

// oneLine makes a text fit for a line of a prompt, of at most that many
// characters.
func oneLine(s string, most int) string {
	return clip.Chars(strings.Join(strings.Fields(codeexec.CleanText(s)), " "), most)
}
