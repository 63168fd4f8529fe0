//go:build linux

// Package keysource reads the key of a vault from where a server's owner keeps it: a
// file, an environment variable, or what a command prints.
package keysource

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/secret"
	"github.com/cubby-sandbox/cubby/internal/clip"
)

const (
	maxText        = 4 << 10 // bytes of a key's text, with what is around it
	maxSaid        = 1 << 10 // bytes of what a command says that fails
	commandTimeout = time.Minute
)

const form = "a key is 32 random bytes as 64 hexadecimal digits or as base64: `openssl rand -hex 32` makes one"

// Parse reads a key's text. No error repeats it.
func Parse(text string) (*secret.Key, error) {
	text = strings.TrimSpace(text)
	raw, err := hex.DecodeString(text)
	if err != nil {
		text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
		raw, err = base64.RawStdEncoding.DecodeString(text)
	}
	if err != nil || len(raw) != secret.Size {
		return nil, errors.New("it is no key: " + form)
	}
	return secret.Parse(raw)
}

// Text is what Parse reads.
func Text(key *secret.Key) string { return hex.EncodeToString(key.Bytes()) }

// File reads a key from a file that nobody but its owner and group may read.
func File(path string) (*secret.Key, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe does not hold up the start
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	case info.Mode().Perm()&0o027 != 0:
		return nil, fmt.Errorf("%s: other users may use this key (mode %04o): chmod 600 %s", path, info.Mode().Perm(), path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxText))
	if err != nil {
		return nil, err
	}
	key, err := Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// Command reads a key from what a shell's command prints, within a minute. What it says
// on its standard error is in the error if it fails, what it prints never is.
func Command(ctx context.Context, command string) (*secret.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	var out, said limited
	out.left, said.left = maxText, maxSaid
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		if text := strings.TrimSpace(said.String()); text != "" {
			return nil, fmt.Errorf("the command failed: %w: %s", err, clip.Ellipsis(text, maxSaid))
		}
		return nil, fmt.Errorf("the command failed: %w", err)
	}
	key, err := Parse(out.String())
	if err != nil {
		return nil, fmt.Errorf("what the command prints: %w", err)
	}
	return key, nil
}

// limited keeps the first bytes of what is written, and takes the rest.
type limited struct {
	bytes.Buffer
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.left -= n
	l.Buffer.Write(b[:n])
	return len(b), nil
}
