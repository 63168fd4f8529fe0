package codeexectest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/artifact"
)

func itoa(n int) string { return strconv.Itoa(n) }

func (w workspaces) collect(t *testing.T) {
	p := w.place(t)
	p.put(t,
		codeexec.PutFile{Path: "out/a.txt", Content: []byte("a")}, codeexec.PutFile{Path: "out/sub/b.csv", Content: []byte("x,y\n1,2\n")},
		codeexec.PutFile{Path: "out/sub/deep/.hidden", Content: []byte("h")}, codeexec.PutFile{Path: "work/w.py", Content: []byte("pass\n")},
		codeexec.PutFile{Path: "skills/s/SKILL.md", Content: []byte("# s\n")}, codeexec.PutFile{Path: "top.md", Content: []byte("# t\n")},
		codeexec.PutFile{Path: "out/pic.png", Content: []byte("\x89PNG\r\n\x1a\n----")},
	)
	t.Run("patterns", func(t *testing.T) {
		for _, tc := range []struct{ patterns, want string }{
			{"out/*.txt", "out/a.txt"},
			{"out/**", "out/a.txt out/pic.png out/sub/b.csv out/sub/deep/.hidden"},
			{"**/*.csv", "out/sub/b.csv"},
			{"$OUTPUT_DIR/*.{txt,png}", "out/a.txt out/pic.png"},
			{"${WORK_DIR}/*.py", "work/w.py"},
			{"$SKILLS_DIR/**", "skills/s/SKILL.md"},
			{"$WORKSPACE_DIR/*.md", "top.md"},
			{"${OUTPUT_DIR}", "out/a.txt out/pic.png out/sub/b.csv out/sub/deep/.hidden"},
			{"out/a.txt out/[a-b].*", "out/a.txt"}, // once
			{"./out/sub/../sub/b.csv", ""},
			{"none/** out/none", ""},
		} {
			files, err := p.FS().Collect(t.Context(), p.ws, strings.Fields(tc.patterns))
			if strings.Contains(tc.patterns, "..") {
				wantCode(t, tc.patterns, err, cubby.CodeInvalidArgument)
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", tc.patterns, err)
			}
			var names []string
			for _, f := range files {
				names = append(names, f.Name)
			}
			if got := strings.Join(names, " "); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.patterns, got, tc.want)
			}
		}
	})
	t.Run("types and sizes", func(t *testing.T) {
		files, err := p.FS().Collect(t.Context(), p.ws, []string{"out/**"})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			want := map[string]string{"out/a.txt": "text/plain; charset=utf-8", "out/sub/b.csv": "text/csv", "out/pic.png": "image/png"}[f.Name]
			if want != "" && f.MIMEType != want || f.SizeBytes != int64(len(f.Content)) || f.Truncated {
				t.Errorf("%s is %s, %d bytes, truncated %v", f.Name, f.MIMEType, f.SizeBytes, f.Truncated)
			}
		}
	})
	t.Run("bad patterns", func(t *testing.T) {
		for _, bad := range []string{"", " ", "[", "{a", "../*", "out/../../*", "/etc/*", "$HOME/*", "${OUTPUT_DIR", strings.Repeat("*a", 300), strings.Repeat("{a,b}", 50)} {
			_, err := p.FS().Collect(t.Context(), p.ws, []string{"out/*", bad})
			wantCode(t, fmt.Sprintf("Collect(%.30q)", bad), err, cubby.CodeInvalidArgument)
			if err != nil && !errors.Is(err, codeexec.ErrBadPath) {
				t.Errorf("%.30q: %v", bad, err)
			}
		}
	})
	t.Run("no pattern, no file", func(t *testing.T) { same(t, "collected", p.collect(t), nil) })
}

func (w workspaces) collectOutputs(t *testing.T) {
	p := w.place(t)
	ctx := t.Context()
	outputs := func(t *testing.T, ctx context.Context, spec codeexec.OutputSpec) codeexec.OutputManifest {
		t.Helper()
		m, err := p.FS().CollectOutputs(ctx, p.ws, spec)
		if err != nil {
			t.Fatalf("CollectOutputs(%+v): %v", spec, err)
		}
		return m
	}
	p.sh(t, `for i in 1 2 3 4 5; do echo "file $i" > out/f$i.txt; done; head -c 3000 /dev/zero > out/large.bin`)

	t.Run("what is there, without content", func(t *testing.T) {
		m := outputs(t, ctx, codeexec.OutputSpec{Globs: []string{"out/*"}})
		if len(m.Files) != 6 || m.LimitsHit {
			t.Fatalf("got %+v", m)
		}
		for _, f := range m.Files {
			if f.Content != nil || f.SizeBytes == 0 || f.MIMEType == "" || f.Truncated || f.SavedAs != "" {
				t.Errorf("got %+v", f)
			}
		}
	})
	t.Run("inline", func(t *testing.T) {
		m := outputs(t, ctx, codeexec.OutputSpec{Globs: []string{"out/f1.txt", "out/none"}, Inline: true})
		if len(m.Files) != 1 || string(m.Files[0].Content) != "file 1\n" || m.Files[0].Name != "out/f1.txt" || m.LimitsHit {
			t.Errorf("got %+v", m)
		}
	})
	t.Run("limits, and what was left", func(t *testing.T) {
		m := outputs(t, ctx, codeexec.OutputSpec{Globs: []string{"out/*"}, Inline: true, MaxFiles: 2})
		if len(m.Files) != 2 || !m.LimitsHit || len(m.Left) != 4 || m.Left[0].Name != "out/f3.txt" || m.Left[0].Reason == "" {
			t.Errorf("files: %+v", m)
		}
		m = outputs(t, ctx, codeexec.OutputSpec{Globs: []string{"out/*"}, Inline: true, MaxFileBytes: 1000})
		last := m.Files[len(m.Files)-1]
		if len(m.Files) != 6 || !m.LimitsHit || len(m.Left) != 1 || last.Name != "out/large.bin" || len(last.Content) != 1000 ||
			!last.Truncated || last.SizeBytes != 3000 {
			t.Errorf("bytes of one: %d of %+v", len(last.Content), m.Left)
		}
		m = outputs(t, ctx, codeexec.OutputSpec{Globs: []string{"out/*"}, Inline: true, MaxTotalBytes: 10})
		if len(m.Files) != 2 || !m.LimitsHit || !m.Files[1].Truncated || string(m.Files[1].Content) != "fil" || len(m.Left) != 5 {
			t.Errorf("bytes of all: %+v", m)
		}
		_, err := p.FS().CollectOutputs(ctx, p.ws, codeexec.OutputSpec{Globs: []string{"out/*"}, MaxFiles: -1})
		wantCode(t, "a negative limit", err, cubby.CodeInvalidArgument)
	})
	t.Run("saved as artifacts", func(t *testing.T) {
		store := &artifact.Memory{}
		info := artifact.SessionInfo{AppName: "app", UserID: "u", SessionID: "s"}
		ctx := codeexec.WithArtifactSession(codeexec.WithArtifactService(ctx, store), info)
		spec := codeexec.OutputSpec{Globs: []string{"out/f1.txt", "out/large.bin"}, Save: true, NameTemplate: "run/", MaxFileBytes: 1000}
		for version := range 2 {
			m := outputs(t, ctx, spec)
			if len(m.Files) != 2 || m.Files[0].SavedAs != "run/out/f1.txt" || m.Files[0].Version != version {
				t.Fatalf("got %+v", m)
			}
			if m.Files[1].SavedAs != "" || !m.LimitsHit {
				t.Errorf("a file that was cut was saved: %+v", m.Files[1])
			}
		}
		a, err := store.Load(ctx, info, "run/out/f1.txt", nil)
		if err != nil || string(a.Data) != "file 1\n" || !strings.HasPrefix(a.MIMEType, "text/plain") {
			t.Errorf("got %+v, %v", a, err)
		}
	})
	t.Run("saved in part", func(t *testing.T) {
		store := &artifact.Memory{MaxBytes: 800} // room for one
		m, err := p.FS().CollectOutputs(codeexec.WithArtifactService(ctx, store), p.ws, codeexec.OutputSpec{Globs: []string{"out/f1.txt", "out/f2.txt"}, Save: true})
		if !errors.Is(err, codeexec.ErrPartialOutputCommit) || codeexec.IsWorkspaceRetrySafe(err) {
			t.Errorf("got %v", err)
		}
		if len(m.Files) != 2 || m.Files[0].SavedAs == "" || m.Files[1].SavedAs != "" {
			t.Errorf("the manifest does not tell: %+v", m)
		}
	})
	t.Run("nowhere to save", func(t *testing.T) {
		_, err := p.FS().CollectOutputs(ctx, p.ws, codeexec.OutputSpec{Globs: []string{"out/*"}, Save: true})
		if !errors.Is(err, codeexec.ErrNoArtifacts) {
			t.Errorf("got %v", err)
		}
	})
}

// What programs leave behind to fool who collects it or writes to it.
func (w workspaces) hostile(t *testing.T) {
	t.Run("links that lead out are not followed", func(t *testing.T) {
		p := w.place(t)
		p.sh(t, `echo in > work/in; mkdir ../outside-$$ && echo secret > ../outside-$$/secret
ln -s ../../outside-$$/secret out/relative; ln -s /etc/passwd out/absolute; ln -s ../../outside-$$ out/folder; ln -s loop out/loop
ln -s nowhere out/dead; ln -s ../work/in out/inside; ln -s .. out/up; rm -rf skills; ln -s /etc skills; rm -r runs; echo $$ > work/pid`)
		m, err := p.FS().CollectOutputs(t.Context(), p.ws, codeexec.OutputSpec{Globs: []string{"out/**", "out/folder/*", "skills/*", "out/up/*"}, Inline: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Files) != 1 || m.Files[0].Name != "out/inside" || string(m.Files[0].Content) != "in\n" {
			t.Errorf("got %+v", m.Files)
		}
		for _, name := range []string{"out/relative", "out/absolute", "out/dead"} {
			if !slices.ContainsFunc(m.Left, func(l codeexec.LeftFile) bool { return l.Name == name }) {
				t.Errorf("%s is not among what was left: %+v", name, m.Left)
			}
		}
		p.sh(t, `rm -r "../outside-$(cat work/pid)"`)
	})
	t.Run("links in the way are not written through", func(t *testing.T) {
		p := w.place(t)
		p.sh(t, `mkdir -p ../aside-$$; echo original > ../aside-$$/file; echo $$ > top
rm -r work; ln -s ../aside-$$ work; ln -s ../../aside-$$/file out/file`)
		// Either is right: the link is replaced, or the write is refused.
		for _, name := range []string{"work/file", "out/file"} {
			if err := p.FS().PutFiles(t.Context(), p.ws, []codeexec.PutFile{{Path: name, Content: []byte("overwritten")}}); err != nil {
				wantCode(t, name, err, cubby.CodeInvalidArgument, cubby.CodePermissionDenied, cubby.CodeInternal, cubby.CodeConflict)
			}
		}
		if out := p.sh(t, `d=../aside-$(cat top); cat "$d/file"; ls "$d"; rm -r "$d"`); out != "original\nfile\n" {
			t.Errorf("written through: %q", out)
		}
	})
	t.Run("pipes, odd names, hard links, folders", func(t *testing.T) {
		p := w.place(t)
		p.sh(t, `mkfifo out/pipe; mkdir out/dir; echo one > out/one; ln out/one out/two
printf 'x' > "out/new
line"; printf 'x' > "$(printf 'out/esc\033[31m')"; printf 'x' > 'out/back\slash'; printf 'x' > "$(printf 'out/\377')"; printf x > "out/-rf"`)
		m, err := p.FS().CollectOutputs(t.Context(), p.ws, codeexec.OutputSpec{Globs: []string{"out/**"}, Inline: true})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for _, f := range m.Files {
			got[f.Name] = string(f.Content)
		}
		same(t, "collected", got, map[string]string{"out/one": "one\n", "out/two": "one\n", "out/-rf": "x"})
		if len(m.Left) != 5 || !m.LimitsHit {
			t.Errorf("left: %+v", m.Left)
		}
		for _, l := range m.Left {
			if l.Reason == "" || strings.ContainsAny(l.Name, "\x1b\n") {
				t.Errorf("left: %+v", l)
			}
		}
	})
	t.Run("files that are larger than they look", func(t *testing.T) {
		p := w.place(t)
		// Some machines let no file be as large.
		out := p.sh(t, `(truncate -s 20G out/sparse || truncate -s 200M out/sparse) 2>/dev/null; truncate -s 3000000 out/zeros; stat -c %s out/sparse`)
		size, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		if err != nil || size < 100<<20 {
			t.Fatalf("it has %s bytes", out)
		}
		m, err := p.FS().CollectOutputs(t.Context(), p.ws, codeexec.OutputSpec{Globs: []string{"out/*"}, Inline: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Files) != 2 || len(m.Files[0].Content) != codeexec.DefaultMaxFileBytes || !m.Files[0].Truncated || m.Files[0].SizeBytes != size {
			t.Errorf("got %+v", m.Left)
		}
	})
	t.Run("files that come and go while they are collected", func(t *testing.T) {
		p := w.place(t)
		s, err := p.Runner().StartProgram(t.Context(), p.ws, codeexec.InteractiveProgramSpec{RunProgramSpec: codeexec.RunProgramSpec{
			Cmd: "sh", Args: []string{"-c", `echo stays > out/stays; echo ready
while :; do for i in 1 2 3 4 5 6 7 8; do echo "$i" > out/t$i; head -c 70000 /dev/zero >> out/grows; done; rm -f out/t* out/grows; done`}, Timeout: 5 * time.Minute,
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for deadline := time.Now().Add(slow); !strings.Contains(s.Log(nil, nil).Output, "ready") && time.Now().Before(deadline); {
			time.Sleep(20 * time.Millisecond)
		}
		for range 5 {
			if got := p.collect(t, "out/**"); got["out/stays"] != "stays\n" {
				t.Errorf("the file that stays was not collected: %v", len(got))
			}
		}
	})
	t.Run("a folder that replaces a file, a file that replaces a folder", func(t *testing.T) {
		p := w.place(t)
		p.put(t, codeexec.PutFile{Path: "work/x", Content: []byte("file")})
		if err := p.FS().PutFiles(t.Context(), p.ws, []codeexec.PutFile{{Path: "work/x/y", Content: []byte("below")}}); err != nil && cubby.CodeOf(err) == 0 {
			t.Errorf("not an error with a code: %v", err)
		}
		p.sh(t, "true") // the workspace is intact
	})
}
