package embedded_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby"
)

// TestFileErrors: what goes wrong with a file in a sandbox is to errors.Is what it
// would be with a file of this machine.
func TestFileErrors(t *testing.T) {
	c := open(t)
	ctx := bounded(t)
	sbx, err := c.Create(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f := sbx.Files()
	if ex := run(t, sbx, "mkdir -p full/in; touch there; ln -s nowhere broken", cubby.WithLanguage("bash")); ex.ExitCode != 0 {
		t.Fatalf("%+v", ex)
	}
	local := filepath.Join(t.TempDir(), "local")
	for _, tt := range []struct {
		name string
		call func(context.Context) error
		code cubby.Code
		is   error // nil for none of them
	}{
		{"stat", func(ctx context.Context) error { _, err := f.Stat(ctx, "none"); return err }, cubby.CodeNotFound, fs.ErrNotExist},
		{"read", func(ctx context.Context) error { _, err := f.Read(ctx, "none"); return err }, cubby.CodeNotFound, fs.ErrNotExist},
		{"read a broken link", func(ctx context.Context) error { _, err := f.Read(ctx, "broken"); return err }, cubby.CodeNotFound, fs.ErrNotExist},
		{"list", func(ctx context.Context) error { _, err := f.List(ctx, "none", 1); return err }, cubby.CodeNotFound, fs.ErrNotExist},
		{"move", func(ctx context.Context) error { _, err := f.Move(ctx, "none", "x"); return err }, cubby.CodeNotFound, fs.ErrNotExist},
		{"watch", func(ctx context.Context) error { _, err := f.Watch(ctx, "none", cubby.WatchOptions{}); return err }, cubby.CodeNotFound, fs.ErrNotExist},
		{"download", func(ctx context.Context) error {
			_, err := f.Download(ctx, "none", local, cubby.DownloadOptions{})
			return err
		}, cubby.CodeNotFound, fs.ErrNotExist},
		{"move onto a full folder", func(ctx context.Context) error { _, err := f.Move(ctx, "full/in", "full"); return err }, cubby.CodeConflict, fs.ErrExist},
		{"write where the kernel says no", func(ctx context.Context) error {
			return f.Write(ctx, "/proc/version", strings.NewReader("x"), 0)
		}, cubby.CodePermissionDenied, fs.ErrPermission},
		{"list a file", func(ctx context.Context) error { _, err := f.List(ctx, "there", 1); return err }, cubby.CodeInvalidArgument, nil},
		{"remove what is needed", func(ctx context.Context) error { return f.Remove(ctx, "/proc") }, cubby.CodeInvalidArgument, nil},
		{"no such user", func(ctx context.Context) error { _, err := f.As("nobody9").Stat(ctx, "none"); return err }, cubby.CodeUnauthenticated, nil},
		{"its context is over", func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			_, err := f.Stat(ctx, "none")
			return err
		}, cubby.CodeCanceled, context.Canceled},
	} {
		err := tt.call(ctx)
		if cubby.CodeOf(err) != tt.code {
			t.Errorf("%s: %v, of the code %v", tt.name, err, cubby.CodeOf(err))
		}
		for _, kind := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, context.Canceled, context.DeadlineExceeded, io.EOF} {
			if errors.Is(err, kind) != (kind == tt.is) {
				t.Errorf("%s: %v is %v: %v", tt.name, err, kind, errors.Is(err, kind))
			}
		}
	}
	if _, err := os.Lstat(local); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a download of nothing made something: %v", err)
	}
	// A sandbox that is not there is no file.
	if _, err := c.Get(ctx, "nothere"); cubby.CodeOf(err) != cubby.CodeNotFound || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such sandbox: %v", err)
	}
}
