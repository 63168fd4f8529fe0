package main

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby/internal/version"
)

// linked is an engineProgram that is this program itself.
type linked interface{ engineIsLinked() }

// linkedNote is for people who wonder why their cubby is slower than the documents say.
// The numbers are README's.
const linkedNote = "Its engine is linked into it, as by `go install`: it is twice as large as a released one,\n" +
	"and a run takes some 50 ms longer.\n"

func newVersion(std stdio, program engineProgram) *cobra.Command {
	var modules, asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: "Print the version. With --modules: what this program, and the programs that are\n" +
			"packed in it, are built from, as `go version -m` prints it for one program. Scanners\n" +
			"that read programs cannot see into the packed ones; `cubby engine unpack` writes\n" +
			"them to files.",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			switch {
			case modules:
				return writeModules(std.out, program, asJSON)
			case asJSON:
				return usagef("--json is for --modules")
			}
			_, err := io.WriteString(std.out, versionText(program))
			return err
		},
	}
	cmd.Flags().BoolVar(&modules, "modules", false, "print the modules that it is built from")
	cmd.Flags().BoolVar(&asJSON, "json", false, "with --modules, print a JSON array")
	return cmd
}

// versionText is what `cubby version` and `cubby --version` print.
func versionText(program engineProgram) string {
	text := version.Line("cubby")
	if _, linked := program.(linked); linked {
		text += linkedNote
	}
	return text
}

// builtFrom is one program in the output of --modules --json. The rest is as
// `go version -m -json` has it.
type builtFrom struct {
	Name string
	*debug.BuildInfo
}

func writeModules(w io.Writer, program engineProgram, asJSON bool) error {
	own, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this program was built without information on its modules")
	}
	programs := []builtFrom{{"cubby", own}}
	pack, packed := program.(enginePack)
	if packed {
		for _, m := range pack.Modules() {
			info, err := debug.ParseBuildInfo(m.text)
			if err != nil {
				return fmt.Errorf("modules of %s: %w", m.name, err)
			}
			// ParseBuildInfo leaves out the line that String has put first.
			first, _, _ := strings.Cut(m.text, "\n")
			info.GoVersion = strings.TrimPrefix(first, "go\t")
			programs = append(programs, builtFrom{m.name, info})
		}
	}
	if asJSON {
		return writeJSON(w, programs)
	}
	for _, p := range programs {
		// As `go version -m`: the name and Go's version, then tabbed lines.
		text := strings.TrimPrefix(p.String(), "go\t"+p.GoVersion+"\n")
		text = strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n\t")
		if _, err := fmt.Fprintf(w, "%s: %s\n\t%s\n", p.Name, p.GoVersion, text); err != nil {
			return err
		}
	}
	return nil
}
