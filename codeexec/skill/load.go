package skill

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// maxContext bounds the documents that one call returns, in bytes.
const maxContext = 256 << 10

// LoadInput is the input of skill_load.
type LoadInput struct {
	Skill          string  `json:"skill" desc:"The skill's name"`
	Docs           Strings `json:"docs,omitempty" desc:"Documents of the skill to load with it"`
	IncludeAllDocs bool    `json:"include_all_docs,omitempty" desc:"Load all its documents"`
}

// LoadOutput is what skill_load returns.
type LoadOutput struct {
	Skill       string   `json:"skill"`
	Description string   `json:"description"`
	Body        string   `json:"body" desc:"How the skill is used, in Markdown"`
	Docs        []Doc    `json:"docs,omitempty" desc:"The documents that were asked for"`
	OtherDocs   []string `json:"other_docs,omitempty" desc:"Documents that can be loaded, too"`
	Warnings    []string `json:"warnings,omitempty"`
}

// Doc is a document of a skill.
type Doc struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

// ListDocsInput is the input of skill_list_docs.
type ListDocsInput struct {
	Skill string `json:"skill" desc:"The skill's name"`
}

// ListDocsOutput is what skill_list_docs returns.
type ListDocsOutput struct {
	Skill string   `json:"skill"`
	Docs  []string `json:"docs" desc:"Paths below the skill's folder"`
}

// SelectDocsInput is the input of skill_select_docs.
type SelectDocsInput struct {
	Skill          string  `json:"skill" desc:"The skill's name"`
	Docs           Strings `json:"docs,omitempty" desc:"Documents of the skill"`
	IncludeAllDocs bool    `json:"include_all_docs,omitempty" desc:"All its documents"`
	Mode           string  `json:"mode,omitempty" enum:"add,replace,clear" desc:"add to what is selected (default), replace it, or clear it"`
}

// SelectDocsOutput is what skill_select_docs returns.
type SelectDocsOutput struct {
	Skill    string   `json:"skill"`
	Mode     string   `json:"mode"`
	Selected []string `json:"selected_docs"`
}

// Load is the tool skill_load: it returns how a skill is used. The skill and the
// documents are then part of [Tools.Context].
func (t *Tools) Load(_ context.Context, in LoadInput) (LoadOutput, error) {
	const op = "skill_load"
	s, err := t.get(in.Skill)
	if err != nil {
		return LoadOutput{}, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	want, err := choose(s, in.Docs, in.IncludeAllDocs)
	if err != nil {
		return LoadOutput{}, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	out := LoadOutput{Skill: s.Name, Description: s.Description, Body: s.Body}
	out.Docs, out.Warnings = t.read(s.Name, want, maxContext)
	for _, doc := range s.Docs {
		if !slices.Contains(want, doc) {
			out.OtherDocs = append(out.OtherDocs, doc)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.selected[s.Name] = union(t.selected[s.Name], want)
	return out, nil
}

func (t *Tools) get(name string) (*Skill, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	s, err := t.cfg.Repository.Get(name)
	if err != nil && cubby.CodeOf(err) == cubby.CodeNotFound {
		var names []string
		for _, known := range t.cfg.Repository.Summaries() {
			names = append(names, known.Name)
		}
		return nil, &cubby.Error{Code: cubby.CodeNotFound, Err: err, Hint: "there are: " + oneLine(strings.Join(names, ", "), 1000)}
	}
	return s, err
}

// choose returns the documents that were asked for, which must be there.
func choose(s *Skill, docs []string, all bool) ([]string, error) {
	if all {
		return s.Docs, nil
	}
	var want []string
	for _, doc := range docs {
		doc = strings.TrimPrefix(doc, "./")
		if !slices.Contains(s.Docs, doc) {
			return nil, &cubby.Error{
				Code: cubby.CodeNotFound, Err: fmt.Errorf("the skill %s has no document %.200q", s.Name, doc),
				Hint: "there are: " + oneLine(strings.Join(s.Docs, ", "), 1000),
			}
		}
		want = union(want, []string{doc})
	}
	return want, nil
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// read reads documents up to a number of bytes.
func (t *Tools) read(name string, docs []string, room int) (read []Doc, warnings []string) {
	for _, doc := range docs {
		content, err := t.cfg.Repository.Doc(name, doc)
		switch {
		case err != nil:
			warnings = append(warnings, fmt.Sprintf("%s cannot be read: %v", doc, err))
		case len(content) > room:
			warnings = append(warnings, fmt.Sprintf("%s was left out: it has %d bytes, and all documents together may have %d", doc, len(content), maxContext))
		default:
			room -= len(content)
			read = append(read, Doc{doc, content})
		}
	}
	return read, warnings
}

// ListDocs is the tool skill_list_docs.
func (t *Tools) ListDocs(_ context.Context, in ListDocsInput) (ListDocsOutput, error) {
	s, err := t.get(in.Skill)
	if err != nil {
		return ListDocsOutput{}, execerr.Wrap("skill_list_docs", cubby.CodeInternal, err)
	}
	return ListDocsOutput{s.Name, append([]string{}, s.Docs...)}, nil
}

// SelectDocs is the tool skill_select_docs: it says which documents of a skill
// are part of [Tools.Context].
func (t *Tools) SelectDocs(_ context.Context, in SelectDocsInput) (SelectDocsOutput, error) {
	const op = "skill_select_docs"
	s, err := t.get(in.Skill)
	if err != nil {
		return SelectDocsOutput{}, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	want, err := choose(s, in.Docs, in.IncludeAllDocs)
	if err != nil {
		return SelectDocsOutput{}, execerr.Wrap(op, cubby.CodeInternal, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	out := SelectDocsOutput{Skill: s.Name, Mode: in.Mode}
	switch in.Mode {
	case "", "add":
		out.Mode, out.Selected = "add", union(t.selected[s.Name], want)
	case "replace":
		out.Selected = append([]string{}, want...)
	case "clear":
		out.Selected = []string{}
	default:
		return SelectDocsOutput{}, execerr.Wrap(op, cubby.CodeInvalidArgument, invalid("the mode %.40q: want add, replace or clear", in.Mode))
	}
	t.selected[s.Name] = out.Selected
	return out, nil
}

// Overview returns what a system prompt says of the skills: their names and
// descriptions. It is empty without skills.
func (t *Tools) Overview() string {
	all := t.cfg.Repository.Summaries()
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("Available skills (load one with skill_load before you use it):\n")
	for _, s := range all {
		fmt.Fprintf(&b, "- %s: %s\n", s.Name, s.Description)
	}
	return b.String()
}

// Context returns the text of the skills that were loaded, with the documents
// that are selected, for a system prompt that is made anew for each turn.
func (t *Tools) Context() string {
	t.mu.Lock()
	selected := map[string][]string{}
	var names []string
	for name, docs := range t.selected {
		names = append(names, name)
		selected[name] = slices.Clone(docs)
	}
	t.mu.Unlock()
	slices.Sort(names)
	var b strings.Builder
	for _, name := range names {
		s, err := t.cfg.Repository.Get(name)
		if err != nil {
			continue // it is gone since it was loaded
		}
		fmt.Fprintf(&b, "[Loaded skill: %s]\n%s\n", name, s.Body)
		docs, _ := t.read(name, selected[name], maxContext)
		for _, doc := range docs {
			fmt.Fprintf(&b, "[Document of %s: %s]\n%s\n", name, doc.Path, doc.Content)
		}
	}
	return b.String()
}
