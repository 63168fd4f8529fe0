// Command pack compresses programs for package packed: pack DIR PROGRAM… writes, for each
// program, DIR/NAME.zst (the program), DIR/NAME.sum (its SHA-256 and length) and
// DIR/NAME.modules (what it is built from, as `go version -m` has it), where NAME is the
// program's file name. The same program gives the same files. With -parts FOLDER it also
// copies what that folder has of NAME.modules: those of programs that the program carries.
package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

func main() {
	if err := pack(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func pack(args []string) error {
	fl := flag.NewFlagSet("pack", flag.ContinueOnError)
	parts := fl.String("parts", "", "`folder` of the modules of what the program carries")
	if err := fl.Parse(args); err != nil {
		return err
	}
	args = fl.Args()
	if len(args) < 2 {
		return errors.New("usage: pack [-parts FOLDER] DIR PROGRAM…")
	}
	if *parts != "" {
		files, err := filepath.Glob(filepath.Join(*parts, "*.modules"))
		if err != nil {
			return err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(args[0], filepath.Base(file)), text, 0o644); err != nil {
				return err
			}
		}
	}
	for _, program := range args[1:] {
		if err := packOne(args[0], program); err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
	}
	return nil
}

func packOne(dir, program string) error {
	raw, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	info, err := buildinfo.Read(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	// One goroutine: how the input is cut among several depends on their number.
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	name := filepath.Join(dir, filepath.Base(program))
	for _, out := range []struct {
		suffix  string
		content []byte
	}{
		{".zst", enc.EncodeAll(raw, nil)},
		{".sum", fmt.Appendf(nil, "%x %d\n", sha256.Sum256(raw), len(raw))},
		{".modules", []byte(info.String())},
	} {
		if err := os.WriteFile(name+out.suffix, out.content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
