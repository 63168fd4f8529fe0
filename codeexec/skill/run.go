package skill

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/internal/artifactctx"
	"github.com/cubby-sandbox/cubby/codeexec/internal/workdir"
	"github.com/cubby-sandbox/cubby/internal/clip"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// Bounds of what a model sends and is shown, in bytes unless said otherwise.
const (
	maxCommand    = 64 << 10
	maxStdin      = 4 << 20
	maxEditor     = 1 << 20
	maxInputs     = 100      // inputs of a command
	maxStream     = 16 << 10 // of stdout and of stderr
	maxPrimary    = 32 << 10 // of a file's content
	maxContent    = 128 << 10
	maxAutoExport = 20 // files in out that are exported without being asked for
)

// RunInput is the input of skill_run.
type RunInput struct {
	Skill             string               `json:"skill" desc:"The skill's name"`
	Command           string               `json:"command" desc:"Shell command, such as python scripts/run.py. Write files to out/"`
	Cwd               string               `json:"cwd,omitempty" desc:"Working directory below the skill's folder; or one that begins with $WORK_DIR, $OUTPUT_DIR or $SKILLS_DIR"`
	Env               map[string]string    `json:"env,omitempty" desc:"Environment variables"`
	Stdin             string               `json:"stdin,omitempty" desc:"Input of the command"`
	EditorText        string               `json:"editor_text,omitempty" desc:"Text that the command's editor ($EDITOR) writes into the file that it is to edit"`
	OutputFiles       Strings              `json:"output_files,omitempty" desc:"Patterns of files to return, such as out/*.csv; by default what is in out/"`
	Timeout           int                  `json:"timeout,omitempty" desc:"Seconds"`
	SaveAsArtifacts   bool                 `json:"save_as_artifacts,omitempty" desc:"Save the files as artifacts"`
	OmitInlineContent bool                 `json:"omit_inline_content,omitempty" desc:"Return the files without their content"`
	ArtifactPrefix    string               `json:"artifact_prefix,omitempty" desc:"Begins the artifacts' names"`
	Inputs            []codeexec.InputSpec `json:"inputs,omitempty" desc:"Files to put into the workspace first"`
	Outputs           *codeexec.OutputSpec `json:"outputs,omitempty" desc:"What to collect, with limits, instead of output_files"`
}

// RunOutput is what skill_run returns.
type RunOutput struct {
	Stdout        string         `json:"stdout" desc:"At most 16 KiB; cut in the middle"`
	Stderr        string         `json:"stderr" desc:"At most 16 KiB; cut in the middle"`
	ExitCode      int            `json:"exit_code"`
	TimedOut      bool           `json:"timed_out"`
	DurationMS    int64          `json:"duration_ms"`
	OutputFiles   []OutputFile   `json:"output_files,omitempty"`
	PrimaryOutput *OutputFile    `json:"primary_output,omitempty" desc:"The file that is most likely the answer"`
	ArtifactFiles []ArtifactFile `json:"artifact_files,omitempty"`
	StagedInputs  []StagedInput  `json:"staged_inputs,omitempty"`
	Warnings      []string       `json:"warnings,omitempty"`
}

// OutputFile is a file that a command left. Content is there for text up to 32
// KiB.
type OutputFile struct {
	Name      string `json:"name"`
	Content   string `json:"content,omitempty"`
	MIMEType  string `json:"mime_type"`
	SizeBytes int64  `json:"size_bytes"`
	Truncated bool   `json:"truncated,omitempty"`
	Ref       string `json:"ref" desc:"Names the file as an input of another command"`
}

// ArtifactFile is a file that was saved.
type ArtifactFile struct {
	Name    string `json:"name"`
	Version int    `json:"version"`
}

// StagedInput is an input and where it is.
type StagedInput struct {
	From string `json:"from"`
	Path string `json:"path"`
}

// Run is the tool skill_run. A command that fails or times out is no error.
func (t *Tools) Run(ctx context.Context, in RunInput) (RunOutput, error) {
	const op = "skill_run"
	out, err := t.run(ctx, in)
	return out, execerr.Wrap(op, cubby.CodeInternal, err)
}

func (t *Tools) run(ctx context.Context, in RunInput) (RunOutput, error) {
	var r codeexec.RunResult
	p, err := t.start(ctx, in, func(p *prepared) (err error) {
		r, err = t.cfg.Engine.Runner().RunProgram(ctx, p.handle.Workspace, p.spec)
		return err
	})
	if err != nil {
		return RunOutput{}, err
	}
	return t.finish(ctx, p, r), nil
}

// start prepares a command and starts it. If the workspace turns out to be lost
// before anything was started, that happens once more in a new one.
func (t *Tools) start(ctx context.Context, in RunInput, begin func(*prepared) error) (*prepared, error) {
	for again := true; ; again = false {
		p, err := t.prepare(ctx, in)
		if err == nil {
			if err = begin(p); err == nil {
				return p, nil
			}
			t.lost(p.handle, err)
		}
		if !again || !codeexec.IsWorkspaceRetrySafe(err) {
			return nil, err
		}
	}
}

// prepared is a command that is ready to run.
type prepared struct {
	in     RunInput
	handle held
	spec   codeexec.RunProgramSpec
	staged []StagedInput
}

// venv puts a skill's own Python on PATH before it runs a command.
const venv = `for d in "$WORK_DIR/.venv" "$SKILL_DIR/.venv"; do
  if [ -d "$d/bin" ]; then VIRTUAL_ENV=$d PATH=$d/bin:$PATH; export VIRTUAL_ENV PATH; fi
done
exec "$1" -c "$2"`

// prepare checks a call and puts everything in its place.
func (t *Tools) prepare(ctx context.Context, in RunInput) (*prepared, error) {
	if err := t.checkRun(&in); err != nil {
		return nil, err
	}
	cwd, err := workingDir(in.Skill, in.Cwd)
	if err != nil {
		return nil, err
	}
	timeout := t.cfg.Timeout
	if in.Timeout > 0 {
		timeout = t.cfg.MaxTimeout
		if limit := int(t.cfg.MaxTimeout / time.Second); in.Timeout < limit {
			timeout = time.Duration(in.Timeout) * time.Second
		}
	}
	h, err := t.workspace(ctx, in.Skill)
	if err != nil {
		return nil, err
	}
	p := &prepared{in: in, handle: h}
	ws := h.Workspace
	if len(in.Inputs) > 0 {
		if err := t.cfg.Engine.FS().StageInputs(ctx, ws, in.Inputs); err != nil {
			t.lost(h, err)
			return nil, err
		}
	}
	for _, input := range in.Inputs {
		if parsed, err := workdir.ParseInput(input); err == nil {
			p.staged = append(p.staged, StagedInput{input.From, parsed.To})
		}
	}
	env := map[string]string{}
	maps.Copy(env, t.cfg.Env)
	env[codeexec.EnvSkillName], env["SKILL_DIR"] = in.Skill, path.Join(ws.Path, codeexec.DirSkills, in.Skill)
	if in.EditorText != "" {
		editor, err := t.editor(ctx, ws, in.EditorText)
		if err != nil {
			return nil, err
		}
		env["EDITOR"], env["VISUAL"] = editor, editor
	}
	maps.Copy(env, in.Env)
	p.spec = codeexec.RunProgramSpec{
		Cmd: "sh", Args: []string{"-c", venv, "sh", t.cfg.Shell, in.Command}, Env: env, Cwd: cwd, Stdin: in.Stdin, Timeout: timeout,
		Limits: t.cfg.Limits,
	}
	return p, nil
}

// checkRun refuses a call that makes no sense before anything is done for it.
func (t *Tools) checkRun(in *RunInput) error {
	if err := checkName(in.Skill); err != nil {
		return err
	}
	if _, err := t.get(in.Skill); err != nil {
		return err
	}
	in.Outputs = outputSpec(in)
	switch {
	case strings.TrimSpace(in.Command) == "":
		return invalid("there is no command")
	case len(in.Command) > maxCommand || len(in.Stdin) > maxStdin || len(in.EditorText) > maxEditor:
		return &cubby.Error{
			Code: cubby.CodeInvalidArgument, Err: fmt.Errorf("a command may have %d bytes, its input %d, an editor's text %d", maxCommand, maxStdin, maxEditor),
			Hint: "put more into a file, as an input",
		}
	case in.Timeout < 0:
		return invalid("the timeout is negative")
	case len(in.Inputs) > maxInputs:
		return invalid("more than %d inputs", maxInputs)
	}
	if err := workdir.CheckEnv(in.Env); err != nil {
		return invalid("%w", err)
	}
	for _, input := range in.Inputs {
		parsed, err := workdir.ParseInput(input)
		if err != nil {
			return err
		}
		if parsed.Scheme == workdir.SchemeHost && !t.cfg.AllowHostInputs {
			return &cubby.Error{
				Code: cubby.CodePermissionDenied, Err: fmt.Errorf("input %.200q: files of the host may not be staged", input.From),
				Hint: "use artifact://, workspace:// or skill://",
			}
		}
	}
	if _, err := workdir.ParsePatterns(in.Outputs.Globs); err != nil {
		return err
	}
	if o := in.Outputs; o.MaxFiles < 0 || o.MaxFileBytes < 0 || o.MaxTotalBytes < 0 {
		return invalid("a limit is negative")
	}
	return nil
}

// outputSpec says what is collected.
func outputSpec(in *RunInput) *codeexec.OutputSpec {
	spec := codeexec.OutputSpec{}
	switch {
	case in.Outputs != nil:
		spec = *in.Outputs
	case len(in.OutputFiles) > 0:
		spec.Globs = in.OutputFiles
	default:
		spec.Globs, spec.MaxFiles = []string{codeexec.DirOut + "/**"}, maxAutoExport
	}
	spec.Save = spec.Save || in.SaveAsArtifacts
	spec.NameTemplate = cmp.Or(spec.NameTemplate, in.ArtifactPrefix)
	spec.Inline = !in.OmitInlineContent
	return &spec
}

// editor puts an editor into the workspace that writes a text, and returns the
// command for it.
func (t *Tools) editor(ctx context.Context, ws codeexec.Workspace, text string) (string, error) {
	dir := path.Join(codeexec.DirWork, ".editor", rand.Text()[:12])
	err := t.cfg.Engine.FS().PutFiles(ctx, ws, []codeexec.PutFile{
		{Path: path.Join(dir, "text"), Content: []byte(text)},
		{Path: path.Join(dir, "editor"), Content: []byte("#!/bin/sh\nfor file; do :; done\nexec cat -- \"$(dirname -- \"$0\")/text\" >\"$file\"\n"), Mode: 0o755},
	})
	return path.Join(ws.Path, dir, "editor"), err
}

// finish collects a command's files. What cannot be collected is a warning: the
// command has run, and that must be told.
func (t *Tools) finish(ctx context.Context, p *prepared, r codeexec.RunResult) RunOutput {
	out := RunOutput{ExitCode: r.ExitCode, TimedOut: r.TimedOut, DurationMS: r.Duration.Milliseconds(), StagedInputs: p.staged}
	warn := func(format string, args ...any) { out.Warnings = append(out.Warnings, fmt.Sprintf(format, args...)) }
	for _, stream := range []struct {
		name string
		from string
		to   *string
	}{{"stdout", r.Stdout, &out.Stdout}, {"stderr", r.Stderr, &out.Stderr}} {
		var cut bool
		if *stream.to, cut = cutMiddle(codeexec.CleanText(stream.from), maxStream); cut {
			warn("%s had %d bytes; its middle is left out. Write long output to a file in out/", stream.name, len(stream.from))
		}
	}
	if t.renewed() {
		warn("the workspace was lost and has been made again: files of earlier commands are gone")
	}
	if r.Truncated {
		warn("the command printed more than is kept")
	}
	spec := *p.in.Outputs
	if _, ok := artifactctx.Service(ctx); spec.Save && !ok {
		warn("the files were not saved as artifacts: there is no artifact service")
		spec.Save = false
	}
	m, err := t.cfg.Engine.FS().CollectOutputs(ctx, p.handle.Workspace, spec)
	if err != nil {
		t.lost(p.handle, err)
		warn("the files were not all collected: %v", err)
	}
	room := maxContent
	for _, f := range m.Files {
		o := OutputFile{Name: f.Name, MIMEType: f.MIMEType, SizeBytes: f.SizeBytes, Truncated: f.Truncated, Ref: "workspace://" + f.Name}
		if spec.Inline && workdir.IsTextMIME(f.MIMEType) && utf8.Valid(f.Content) && room > 0 {
			var cut bool
			o.Content, cut = cutMiddle(string(f.Content), min(maxPrimary, room))
			o.Truncated = o.Truncated || cut
			room -= len(o.Content)
		}
		out.OutputFiles = append(out.OutputFiles, o)
		if f.SavedAs != "" {
			out.ArtifactFiles = append(out.ArtifactFiles, ArtifactFile{f.SavedAs, f.Version})
		}
	}
	for _, left := range m.Left {
		warn("%s: %s", left.Name, left.Reason)
	}
	out.PrimaryOutput = primary(out.OutputFiles)
	return out
}

// primary returns the first text that is there whole.
func primary(files []OutputFile) *OutputFile {
	for i := range files {
		if files[i].Content != "" && !files[i].Truncated {
			return &files[i]
		}
	}
	return nil
}

// cutMiddle keeps a text's beginning and end, of at most that many bytes in all.
func cutMiddle(s string, most int) (string, bool) {
	if len(s) <= most {
		return s, false
	}
	const note = "\n[... %d bytes are left out here ...]\n"
	half := max((most-len(note)-20)/2, 0)
	head, tail, gone := clip.Middle(s, half, half)
	return head + fmt.Sprintf(note, gone) + tail, true
}
