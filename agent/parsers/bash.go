package parsers

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/cubby-sandbox/cubby/agent/internal/source"
	"github.com/cubby-sandbox/cubby/agent/validate"
)

// maxShellDepth bounds commands in commands: bash -c "bash -c …".
const maxShellDepth = 4

// Bash looks at Bash. mvdan.cc/sh parses it, which wants keys of associative
// arrays with blanks in them quoted; Bash does not.
type Bash struct{}

// Check implements [validate.Checker]. Its error is always nil.
func (Bash) Check(_ context.Context, code validate.Code) (validate.Observation, error) {
	src := source.New(code.Source)
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(src.Text), "")
	if err != nil {
		return validate.Observation{Errors: []validate.Fact{bashError(src, err)}}, nil
	}
	s := &shell{src: src, functions: map[string]bool{}}
	syntax.Walk(file, func(n syntax.Node) bool {
		if f, ok := n.(*syntax.FuncDecl); ok && f.Name != nil {
			s.functions[f.Name.Value] = true
		}
		return true
	})
	s.walk(file, nil)
	return validate.Observation{Facts: s.facts}, nil
}

func bashError(src *source.Source, err error) validate.Fact {
	var parse syntax.ParseError
	var lang syntax.LangError
	var pos syntax.Pos
	text := err.Error()
	switch {
	case errors.As(err, &parse):
		pos, text = parse.Pos, parse.Text
	case errors.As(err, &lang):
		pos = lang.Pos
		_, text, _ = strings.Cut(text, ": ")
	}
	f := validate.Fact{Message: source.Visible(text)}
	if strings.Contains(text, "arithmetic") {
		// The parser cannot know which arrays are associative.
		f.Remedy = `if it is the key of an associative array, quote it, as in m["a b"]`
	}
	if pos.IsValid() {
		f.Line, f.Column = src.Position(int(pos.Offset()))
	}
	return f
}

// shell collects facts about a script.
type shell struct {
	src   *source.Source
	facts []validate.Fact
	depth int
	// functions are those that the script declares.
	functions map[string]bool
}

// walk looks at node. What is in a word that is run as a script counts as being
// where that word is: then it is not nil.
func (s *shell) walk(node syntax.Node, where *syntax.Pos) {
	syntax.Walk(node, func(n syntax.Node) bool {
		at := where
		if n != nil && at == nil {
			pos := n.Pos()
			at = &pos
		}
		switch n := n.(type) {
		case *syntax.CallExpr:
			if len(n.Args) > 0 {
				if where == nil {
					pos := n.Args[0].Pos()
					at = &pos
				}
				s.command(n.Args, *at)
			}
		case *syntax.Redirect:
			s.redirect(n, *at)
		case *syntax.BinaryCmd:
			s.pipe(n, *at)
		case *syntax.FuncDecl:
			s.function(n, *at)
		case *syntax.CmdSubst:
			s.add(*at, "bash.substitution", "inserts the output of commands", "")
		case *syntax.ProcSubst:
			s.add(*at, "bash.substitution", "passes the output of commands as a file", "")
		}
		return true
	})
}

func (s *shell) add(pos syntax.Pos, id, message, remedy string) {
	line, column := s.src.Position(int(pos.Offset()))
	s.facts = append(s.facts, validate.Fact{
		ID: id, Line: line, Column: column, Message: message, Remedy: remedy,
	})
}

// constant returns the text of a word if it is known before it runs.
func constant(w *syntax.Word) (string, bool) {
	var b strings.Builder
	ok := constantParts(&b, w.Parts, false)
	return b.String(), ok
}

func constantParts(b *strings.Builder, parts []syntax.WordPart, quoted bool) bool {
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			b.WriteString(unescape(p.Value, quoted))
		case *syntax.SglQuoted:
			if p.Dollar && strings.Contains(p.Value, `\`) {
				return false // $'\x72\x6d'
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			if !constantParts(b, p.Parts, true) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// unescape removes the backslashes that Bash removes.
func unescape(text string, quoted bool) string {
	if !strings.Contains(text, `\`) {
		return text
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) && (!quoted || strings.IndexByte("$`\"\\\n", text[i+1]) >= 0) {
			i++
			if text[i] == '\n' {
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return b.String()
}

// command looks at one simple command, and at the one that it wraps.
func (s *shell) command(args []*syntax.Word, pos syntax.Pos) {
	for range 10 {
		name, ok := constant(args[0])
		if !ok {
			s.add(pos, "bash.dynamic.command", "the command's name is not known before it runs", "write the command itself")
			return
		}
		if name == "" {
			return
		}
		name = path.Base(name)
		words := make([]string, len(args))
		for i, w := range args {
			words[i], _ = constant(w)
			if lit := shape(w); words[i] == "" || lit == "~" || strings.HasPrefix(lit, "$") {
				words[i] = lit
			}
		}
		s.classify(name, words, pos)
		rest := s.wrapped(name, args, words, pos)
		if len(rest) == 0 {
			return
		}
		args = rest
	}
}

// shape returns a word with its variables as they are written.
func shape(w *syntax.Word) string {
	var b strings.Builder
	var parts func([]syntax.WordPart)
	parts = func(list []syntax.WordPart) {
		for _, part := range list {
			switch p := part.(type) {
			case *syntax.Lit:
				b.WriteString(p.Value)
			case *syntax.SglQuoted:
				b.WriteString(p.Value)
			case *syntax.DblQuoted:
				parts(p.Parts)
			case *syntax.ParamExp:
				if p.Param != nil {
					b.WriteString("$" + p.Param.Value)
				}
			}
		}
	}
	parts(w.Parts)
	return b.String()
}

// classify tells what a command is about. words[0] is its name.
func (s *shell) classify(name string, words []string, pos syntax.Pos) {
	id := source.Label(name)
	if s.functions[name] {
		return // its body is looked at where it is
	}
	defer s.add(pos, "bash.command."+id, "runs "+id, "") // after what says more
	switch {
	case name == "eval":
		s.add(pos, "bash.dynamic.eval", "eval runs text as commands", "write the commands themselves")
	case usesNetwork(name, words):
		s.add(pos, "bash.network."+id, id+" uses the network", "use the files that are there")
	case slices.Contains(privilegeCommands, name):
		s.add(pos, "bash.privilege."+id, id+" changes users or their rights", "do it as the user that you are")
	case slices.Contains(destructiveCommands, name) || strings.HasPrefix(name, "mkfs."):
		s.add(pos, "bash.destructive."+id, id+" destroys data or stops the system", "")
	case name == "rm" && removesTree(words):
		s.add(pos, "bash.destructive.rm", "rm removes whole folders", "name the files to be removed, without -r")
	case name == "dd" && slices.ContainsFunc(words, func(w string) bool { return isDevice(strings.TrimPrefix(w, "of=")) && strings.HasPrefix(w, "of=") }):
		s.add(pos, "bash.destructive.dd", "dd writes to a device", "write to a file")
	case name == "find" && slices.Contains(words, "-delete"):
		s.add(pos, "bash.destructive.find", "find removes what it finds", "list the files first, then remove them by name")
	case name == "chmod" && slices.ContainsFunc(words[1:], setsID):
		s.add(pos, "bash.privilege.chmod", "chmod lets a program run with its owner's rights", "")
	case name == "chmod" && recursive(words) && slices.ContainsFunc(words[1:], isRoot):
		s.add(pos, "bash.destructive.chmod", "chmod changes the whole system", "name the folder that is meant")
	}
}

// wrapped returns the command that a command runs, and looks at scripts in its
// arguments.
func (s *shell) wrapped(name string, args []*syntax.Word, words []string, pos syntax.Pos) []*syntax.Word {
	switch name {
	case "eval":
		s.script(strings.Join(words[1:], " "), args[1:], pos)
	case ".", "source":
		s.add(pos, "bash.dynamic.source", "runs the commands of a file", "")
	case "bash", "sh", "dash", "zsh", "ksh":
		for i := 1; i+1 < len(args); i++ {
			if w := words[i]; strings.HasPrefix(w, "-") && !strings.HasPrefix(w, "--") && strings.HasSuffix(w, "c") {
				s.script(words[i+1], args[i+1:i+2], pos)
				break
			}
		}
	case "trap":
		if len(args) > 2 {
			s.script(words[1], args[1:2], pos)
		}
	case "find":
		for i, w := range words[:len(words)-1] {
			if slices.Contains([]string{"-exec", "-execdir", "-ok", "-okdir"}, w) {
				return args[i+1:]
			}
		}
	case "timeout", "nice", "chroot", "sudo", "doas", "env", "xargs", "nohup", "time", "exec", "command", "builtin",
		"busybox", "setsid", "stdbuf", "ionice", "taskset", "flock", "parallel", "watch", "runuser", "su", "unshare", "strace":
		return behind(name, args, words)
	}
	return nil
}

// behind skips the options of a command that runs another.
func behind(name string, args []*syntax.Word, words []string) []*syntax.Word {
	i := 1
	for ; i < len(args); i++ {
		w := words[i]
		switch {
		case w == "--":
			i++
		case strings.HasPrefix(w, "-"):
			if strings.ContainsRune(optionsWithValue[name], lastRune(w)) && len(w) == 2 {
				i++
			}
			continue
		case name == "env" && strings.Contains(w, "="):
			continue
		}
		break
	}
	if slices.Contains([]string{"timeout", "chroot", "taskset", "flock"}, name) {
		i++ // a duration, a folder, a mask, a file
	}
	if name == "su" || name == "runuser" || i >= len(args) {
		return nil
	}
	return args[i:]
}

func lastRune(s string) rune { return rune(s[len(s)-1]) }

// script looks at text that is run as a script, if it is known.
func (s *shell) script(text string, words []*syntax.Word, pos syntax.Pos) {
	for _, w := range words {
		if _, ok := constant(w); !ok {
			s.add(pos, "bash.dynamic.command", "the commands are not known before they run", "write the commands themselves")
			return
		}
	}
	if _, deep := source.New(text).TooDeep(); deep || s.depth >= maxShellDepth {
		s.add(pos, "bash.dynamic.command", "commands are nested too deeply to be looked at", "write the commands themselves")
		return
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	if err != nil {
		return // it fails when it runs
	}
	s.depth++
	s.walk(file, &pos)
	s.depth--
}

// redirect looks for devices and for Bash's own connections.
func (s *shell) redirect(r *syntax.Redirect, pos syntax.Pos) {
	if r.Word == nil || r.Hdoc != nil {
		return
	}
	target := shape(r.Word)
	switch {
	case strings.HasPrefix(target, "/dev/tcp/"), strings.HasPrefix(target, "/dev/udp/"):
		s.add(pos, "bash.network."+source.Label(target[5:8]), "opens a connection", "use the files that are there")
	case isDevice(target) && r.Op != syntax.RdrIn:
		s.add(pos, "bash.destructive.device", "writes to the device "+source.Label(target), "write to a file")
	}
}

// pipe looks for what comes from elsewhere and is run.
func (s *shell) pipe(b *syntax.BinaryCmd, pos syntax.Pos) {
	if b.Op != syntax.Pipe && b.Op != syntax.PipeAll {
		return
	}
	call, ok := b.Y.Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) == 0 {
		return
	}
	if name, ok := constant(call.Args[0]); ok {
		args := call.Args
		if name == "sudo" && len(args) > 1 {
			args = args[1:]
			name, _ = constant(args[0])
		}
		name = path.Base(name)
		if slices.Contains([]string{"bash", "sh", "dash", "zsh", "python", "python3", "perl", "node"}, name) &&
			(len(args) == 1 || shape(args[1]) == "-" || shape(args[1]) == "-s") {
			s.add(pos, "bash.dynamic.pipe-to-shell", "runs what another command prints", "save it to a file, read it, then run it")
		}
	}
}

// function finds a function that runs itself twice over: a fork bomb.
func (s *shell) function(f *syntax.FuncDecl, pos syntax.Pos) {
	if f.Name == nil || f.Body == nil {
		return
	}
	bomb := false
	syntax.Walk(f.Body, func(n syntax.Node) bool {
		if b, ok := n.(*syntax.BinaryCmd); ok && (b.Op == syntax.Pipe || b.Op == syntax.PipeAll) {
			bomb = bomb || callsName(b.X, f.Name.Value) && callsName(b.Y, f.Name.Value)
		}
		if st, ok := n.(*syntax.Stmt); ok && st.Background {
			bomb = bomb || callsName(st, f.Name.Value)
		}
		return true
	})
	if bomb {
		s.add(pos, "bash.destructive.fork-bomb", fmt.Sprintf("%s starts itself over and over", source.Label(f.Name.Value)), "")
	}
}

func callsName(n *syntax.Stmt, name string) bool {
	found := false
	syntax.Walk(n, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 && call.Args[0].Lit() == name {
			found = true
		}
		return true
	})
	return found
}
