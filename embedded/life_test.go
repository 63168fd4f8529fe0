package embedded_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby"
)

// moving bounds a call that moves memory.
func moving(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestPauseAndResume: variables, files, commands and what code has begun are there after
// a resume, any number of times, and one of files only says what was lost.
func TestPauseAndResume(t *testing.T) {
	c := open(t)
	ctx := moving(t)
	sbx, err := c.Create(ctx, cubby.WithWarm("python"))
	if err != nil {
		t.Fatal(err)
	}
	run(t, sbx, "x = [41]\nopen('note', 'w').write('kept')\nkeep = open('note')")
	cmd, err := sbx.Commands().Start(ctx, "read line; echo got $line; exec sleep 1000", cubby.WithOpenStdin())
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := sbx.RunCode(ctx, "import time\nfor i in range(200):\n    time.sleep(.01)\nx[0] += 1")
		waiting <- err
	}()
	time.Sleep(300 * time.Millisecond) // the code is to be under way
	for range 2 {
		if err := sbx.Pause(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-waiting; cubby.CodeOf(err) != cubby.CodePaused || !strings.Contains(err.Error(), "Client.Connect resumes it") {
		t.Errorf("code that a pause stopped: %v", err)
	}
	if _, err := cmd.Wait(ctx); cubby.CodeOf(err) != cubby.CodePaused {
		t.Errorf("a command that a pause stopped: %v", err)
	}
	for name, err := range map[string]error{
		"RunCode":    second(sbx.RunCode(ctx, "1")),
		"Run":        second(sbx.Commands().Run(ctx, "true")),
		"Read":       second(sbx.Files().Read(ctx, "note")),
		"SetTimeout": sbx.SetTimeout(ctx, time.Minute),
	} {
		if cubby.CodeOf(err) != cubby.CodePaused || !strings.Contains(err.Error(), "resumes it") {
			t.Errorf("%s while it is paused: %v", name, err)
		}
	}
	if info, err := sbx.Info(ctx); err != nil || info.State != cubby.StatePaused {
		t.Fatalf("paused: %+v, %v", info, err)
	}
	if _, err := c.Connect(ctx, sbx.ID(), cubby.WithTimeout(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if info, err := sbx.Info(ctx); err != nil || info.State != cubby.StateRunning || info.Instance != (cubby.Instance{Memory: 1, Files: 1}) {
		t.Errorf("resumed: %+v, %v", info, err)
	}
	said := make(chan string, 1)
	again, err := sbx.Commands().Connect(ctx, cmd.PID(), cubby.OnStdout(func(text string) { said <- text }))
	if err == nil {
		err = again.Write(ctx, []byte("it\n"))
	}
	if err != nil {
		t.Fatalf("the command after the resume: %v", err)
	}
	select {
	case text := <-said:
		if text != "got it\n" {
			t.Errorf("the command after the resume said %q", text)
		}
	case <-ctx.Done():
		t.Fatal("the command after the resume says nothing")
	}
	if err := again.Kill(ctx); err != nil {
		t.Error(err)
	}
	// The code that was stopped has gone on, too: this waits for its end.
	if ex := run(t, sbx, "print(x, keep.read())"); ex.Stdout != "[42] kept\n" {
		t.Errorf("variables and open files after the resume: %+v", ex)
	}
	if err := sbx.Pause(ctx, cubby.WithFilesOnly()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Connect(ctx, sbx.ID()); err != nil {
		t.Fatal(err)
	}
	if ex := run(t, sbx, "print(open('note').read(), 'x' in globals())"); ex.Stdout != "kept False\n" {
		t.Errorf("resumed with its files: %+v", ex)
	}
	if info, err := sbx.Info(ctx); err != nil || info.Instance != (cubby.Instance{Memory: 2, Files: 1}) {
		t.Errorf("resumed with its files: %+v, %v", info, err)
	}
}

// TestSnapshotsAndForks: what is made of a sandbox has its variables and goes its own
// way.
func TestSnapshotsAndForks(t *testing.T) {
	c := open(t)
	ctx := moving(t)
	sbx, err := c.Create(ctx, cubby.WithWarm("python"), cubby.WithMetadata(map[string]string{"job": "7"}))
	if err != nil {
		t.Fatal(err)
	}
	run(t, sbx, "x = 1\nopen('note', 'w').write('one')")
	snapshot, err := sbx.Snapshot(ctx, cubby.WithName("ready:v1"))
	if err != nil || snapshot.ID != "ready:v1" || snapshot.SandboxID != sbx.ID() || snapshot.Size == 0 || snapshot.FilesOnly {
		t.Fatalf("%+v, %v", snapshot, err)
	}
	files, err := sbx.Snapshot(ctx, cubby.WithFilesOnly())
	if err != nil || !files.FilesOnly || files.Size >= snapshot.Size {
		t.Fatalf("%+v, %v", files, err)
	}
	if _, err := sbx.Snapshot(ctx, cubby.WithName("Bad Name")); cubby.CodeOf(err) != cubby.CodeInvalidArgument {
		t.Errorf("a bad name: %v", err)
	}
	if ids := snapshots(t, c.Client); !slices.Equal(ids, []string{files.ID, snapshot.ID}) {
		t.Errorf("listed %v", ids)
	}
	run(t, sbx, "x = 2\nopen('note', 'w').write('two')")

	const show = "print(x if 'x' in globals() else None, open('note').read())"
	for ref, want := range map[string]string{snapshot.ID: "1 one\n", files.ID: "None one\n"} {
		made, err := c.Create(ctx, cubby.WithTemplate(ref))
		if err != nil {
			t.Fatal(err)
		}
		if ex := run(t, made, show); ex.Stdout != want {
			t.Errorf("made of %s: %+v", ref, ex)
		}
		if err := made.Kill(ctx); err != nil {
			t.Error(err)
		}
	}

	copies, err := sbx.Fork(ctx, 2, cubby.WithTimeout(time.Minute))
	if err != nil || len(copies) != 2 {
		t.Fatalf("%d copies, %v", len(copies), err)
	}
	drawn := map[string]bool{}
	for i, one := range copies {
		if ex := run(t, one, fmt.Sprintf("x += %d; print(x)", i)); ex.Stdout != fmt.Sprintln(2+i) {
			t.Errorf("copy %d: %+v", i, ex)
		}
		drawn[run(t, one, "import random; print(random.random())").Stdout] = true
		info, err := one.Info(ctx)
		if err != nil || info.Metadata["job"] != "7" || info.EndAt.Sub(info.StartedAt).Round(time.Second) > time.Minute {
			t.Errorf("copy %d: %+v, %v", i, info, err)
		}
		if err := one.Kill(ctx); err != nil {
			t.Error(err)
		}
	}
	if len(drawn) != 2 {
		t.Errorf("copies draw the same: %v", drawn)
	}
	if ex := run(t, sbx, show); ex.Stdout != "2 two\n" {
		t.Errorf("the source of copies: %+v", ex)
	}

	if err := sbx.Rollback(ctx, snapshot.ID); err != nil {
		t.Fatal(err)
	}
	if ex := run(t, sbx, show); ex.Stdout != "1 one\n" {
		t.Errorf("rolled back: %+v", ex)
	}
	if info, err := sbx.Info(ctx); err != nil || info.Instance != (cubby.Instance{Memory: 2, Files: 2}) {
		t.Errorf("rolled back: %+v, %v", info, err)
	}
	if err := c.DeleteSnapshot(ctx, snapshot.ID); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"delete":   c.DeleteSnapshot(ctx, snapshot.ID),
		"rollback": sbx.Rollback(ctx, snapshot.ID),
		"create":   second(c.Create(ctx, cubby.WithTemplate(snapshot.ID))),
	} {
		if cubby.CodeOf(err) != cubby.CodeNotFound {
			t.Errorf("%s of a snapshot that was deleted: %v", name, err)
		}
	}
	if ids := snapshots(t, c.Client); !slices.Equal(ids, []string{files.ID}) {
		t.Errorf("listed %v", ids)
	}
}

func snapshots(t *testing.T, c *cubby.Client) []string {
	t.Helper()
	var ids []string
	for one, err := range c.Snapshots(t.Context(), cubby.SnapshotListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, one.ID)
	}
	return ids
}

// TestAutoPause: a sandbox that is idle is paused, and the next call wakes it.
func TestAutoPause(t *testing.T) {
	c := open(t)
	ctx := moving(t)
	sbx, err := c.Create(ctx, cubby.WithAutoPause(), cubby.WithAutoResume(), cubby.WithIdleTimeout(time.Second), cubby.WithTimeout(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	run(t, sbx, "x = 7")
	for info := (*cubby.Info)(nil); info == nil || info.State != cubby.StatePaused; time.Sleep(100 * time.Millisecond) {
		if info, err = sbx.Info(ctx); err != nil { // also where it takes too long
			t.Fatal(err)
		}
	}
	if ex := run(t, sbx, "print(x)"); ex.Stdout != "7\n" {
		t.Errorf("woken: %+v", ex)
	}
}

// TestMuchMemory: memory and files of hundreds of megabytes, which are read while code
// runs again, are whole after a resume, also if the next pause or copy comes at once, and
// what they are read from is gone.
func TestMuchMemory(t *testing.T) {
	c := open(t)
	ctx := moving(t)
	sbx, err := c.Create(ctx, cubby.WithLimits(cubby.Limits{Memory: 1 << 30, Disk: 1 << 30}))
	if err != nil {
		t.Fatal(err)
	}
	const digest = "print(hashlib.sha256(kept).hexdigest(), hashlib.sha256(open('kept', 'rb').read()).hexdigest())"
	want := run(t, sbx, "import hashlib, os\nkept = os.urandom(200 << 20)\nopen('kept', 'wb').write(kept[:50 << 20])\n"+digest).Stdout
	same := func(what string, sbx *cubby.Sandbox) {
		t.Helper()
		if got := run(t, sbx, digest).Stdout; got != want {
			t.Errorf("%s: %q, and not %q", what, got, want)
		}
	}
	for range 2 { // the second pause comes while pages are read
		if err := sbx.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		if sbx, err = c.Connect(ctx, sbx.ID()); err != nil {
			t.Fatal(err)
		}
	}
	copies, err := sbx.Fork(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	same("the copy", copies[0])
	same("the source", sbx)
	if err := sbx.Kill(ctx); err != nil {
		t.Error(err)
	}
	same("the copy alone", copies[0])
}
