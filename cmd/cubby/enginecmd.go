package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/packed"
)

// enginePack is an engineProgram that is packed into this one, with what it has packed
// in itself.
type enginePack interface {
	// Programs tells of the programs as they would be run now: the engine's first. With
	// verify set their content is read and compared.
	Programs(ctx context.Context, verify bool) ([]packed.Report, error)
	// Unpack writes the programs into a folder.
	Unpack(ctx context.Context, dir string) ([]packed.Report, error)
	// Modules are what the programs are built from, as `go version -m` has it, by their
	// names.
	Modules() []programModules
}

type programModules struct{ name, text string }

// linkedText is what there is to say of an engine that is no program of its own.
const linkedText = "engine: linked into this program"

func newEngine(std stdio, program engineProgram) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Show, verify or unpack the programs that are packed in this one",
		Long: "Show, verify or unpack the programs that are packed in this one.\n\n" +
			"Sandboxes run in a program of their own, cubby-engine, which this one carries.\n" +
			"It runs it from the first of these places that has exactly that program:\n\n" +
			"  $CUBBY_ENGINE, if that is set: a file that does not fit is an error\n" +
			"  a file cubby-engine beside this program, or in ../lib/cubby\n" +
			"  the cache: /var/cache/cubby for root, else $XDG_CACHE_HOME/cubby or\n" +
			"  ~/.cache/cubby, where it is unpacked at the first start\n" +
			"  a temporary folder, or memory, where it is unpacked at each start\n\n" +
			"A folder counts if it and all above it belong to root or to you, nobody else may\n" +
			"write them, and programs can be run from there.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newEnginePath(std, program), newEngineVerify(std, program), newEngineUnpack(std, program))
	return cmd
}

func newEnginePath(std stdio, program engineProgram) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "path",
		Short: "Print the engine's file that would run",
		Long: "Print the engine's file that would run; unpack it if need be. Standard error says\n" +
			"which places were passed over, and why. With --json: of all programs, as an array.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pack, err := packOf(std, program)
			if pack == nil {
				return err
			}
			reports, err := pack.Programs(cmd.Context(), false)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(std.out, reports)
			}
			for _, line := range placeLines(reports[0]) {
				fmt.Fprintln(std.err, line)
			}
			_, err = fmt.Fprintln(std.out, reports[0].Path)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array of all programs")
	return cmd
}

// placeLines say why a program is where it is; nothing if there is nothing to say.
func placeLines(r packed.Report) []string {
	var lines []string
	for _, p := range r.Passed {
		lines = append(lines, "passed over: "+passedText(p))
	}
	if !r.From.Stays() {
		lines = append(lines, "unpacked at each start ("+string(r.From)+")")
	}
	return lines
}

func passedText(p packed.ReportPassed) string {
	if p.Path == "" {
		return fmt.Sprintf("%s: %s", p.From, p.Why)
	}
	return fmt.Sprintf("%s %s: %s", p.From, p.Path, p.Why)
}

func newEngineVerify(std stdio, program engineProgram) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the programs that would run with what is packed",
		Long: "Read the programs that would run and compare their SHA-256 with that of the ones\n" +
			"that are packed. Exit status: 0 if they are the same, 1 if not.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pack, err := packOf(std, program)
			if pack == nil {
				return err
			}
			reports, err := pack.Programs(cmd.Context(), true)
			if err != nil {
				return err
			}
			bad := false
			for _, r := range reports {
				bad = bad || r.Problem != ""
			}
			if asJSON {
				err = writeJSON(std.out, reports)
			} else {
				err = writeVerified(std.out, reports)
			}
			if err == nil && bad {
				err = status(exitFailed)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return cmd
}

func writeVerified(w io.Writer, reports []packed.Report) error {
	for _, r := range reports {
		word := "OK"
		if r.Problem != "" {
			word = "WRONG: " + r.Problem
		}
		if _, err := fmt.Fprintf(w, "%s  %s: %s\n", r.SHA256, r.Path, word); err != nil {
			return err
		}
	}
	return nil
}

func newEngineUnpack(std stdio, program engineProgram) *cobra.Command {
	return &cobra.Command{
		Use:   "unpack DIR",
		Short: "Write the packed programs into a folder, for packages and container images",
		Long: "Write the packed programs into a folder, which is made if need be: for packages and\n" +
			"container images, which ship them in ../lib/cubby beside the folder of cubby. Where\n" +
			"they are, nothing is unpacked at run time. Scanners can read them, too:\n\n" +
			"  cubby engine unpack /tmp/parts && govulncheck -mode binary /tmp/parts/cubby-engine",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("unpack takes one folder, got %q", args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			pack, err := packOf(std, program)
			if pack == nil {
				if err == nil {
					err = status(exitFailed) // nothing was written
				}
				return err
			}
			dir, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			// Other users run what is there, whatever the umask is.
			if err := os.Mkdir(dir, 0o755); err == nil {
				err = os.Chmod(dir, 0o755)
				if err != nil {
					return err
				}
			} else if !errors.Is(err, os.ErrExist) {
				return err
			}
			reports, err := pack.Unpack(cmd.Context(), dir)
			if err != nil {
				return err
			}
			return writeVerified(std.out, reports)
		},
	}
}

// packOf is the program's pack. Without one it says what there is instead, and returns
// nil; the error is that of a platform without an engine.
func packOf(std stdio, program engineProgram) (enginePack, error) {
	if pack, ok := program.(enginePack); ok {
		return pack, nil
	}
	if _, err := program.Path(context.Background()); err != nil {
		if _, ok := errors.AsType[*cubby.Error](err); ok {
			return nil, err
		}
	}
	_, err := fmt.Fprintln(std.out, linkedText)
	return nil, err
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
