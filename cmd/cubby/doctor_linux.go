package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/datafolder"
	"github.com/cubby-sandbox/cubby/cmd/internal/doctor"
	"github.com/cubby-sandbox/cubby/cmd/internal/enginename"
	"github.com/cubby-sandbox/cubby/cmd/internal/template"
	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
	"github.com/cubby-sandbox/cubby/embedded"
	"github.com/cubby-sandbox/cubby/internal/handshake"
	"github.com/cubby-sandbox/cubby/internal/namespace"
)

func newDoctor(std stdio, open opener, program engineProgram) *cobra.Command {
	var asJSON bool
	var python, node, engineName, dataDir string
	var key keyFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can do, what is missing and how to get it",
		Long: "Say what this machine can do, what is missing and how to get it.\n\n" +
			"It starts a sandbox to see, and changes nothing. Exit status: 0 if code can be\n" +
			"run here, 1 if not.\n\n" +
			"Of the secrets that `cubby serve` keeps it says what protects their key: give\n" +
			"the flags about folder and key that the server has.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			python = cmp.Or(python, os.Getenv("CUBBY_PYTHON"))
			node = cmp.Or(node, os.Getenv("CUBBY_NODE"))
			if err := errors.Join(checkEngine(engineName), key.check()); err != nil {
				return err
			}
			secretsKey := doctor.SecretsKey{DataDir: dataDir, File: key.file, Env: key.env, Command: key.command}
			if dataDir == "" {
				// Who has no home has no folder, and no server there.
				secretsKey.DataDir, _ = datafolder.Default(os.Getenv, os.Geteuid())
			}
			report := doctor.Examine(cmd.Context(), doctor.Options{
				Engine:     trial{open, embedded.Config{Python: python, Node: node, Engine: engineName}},
				EngineName: engineName, EngineCommit: program.Commit(cmd.Context(), engineName),
				Program:       func(ctx context.Context) doctor.Check { return checkProgram(ctx, program) },
				TryNamespaces: tryNamespaces,
				Template:      template.Options{Python: python, Node: node},
				SecretsKey:    secretsKey,
			})
			if asJSON {
				enc := json.NewEncoder(std.out)
				enc.SetIndent("", "  ")
				if err := enc.Encode(report); err != nil {
					return err
				}
			} else if err := report.WriteText(std.out, terminal.Is(std.out) && os.Getenv("NO_COLOR") == ""); err != nil {
				return err
			}
			if !report.OK {
				return status(exitFailed)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().StringVar(&python, "python", "", "python3 to examine (default $CUBBY_PYTHON, then python3 on PATH)")
	cmd.Flags().StringVar(&node, "node", "", "node to examine (default $CUBBY_NODE, then node on PATH)")
	cmd.Flags().StringVar(&engineName, "engine", enginename.Default, engineUsage)
	cmd.Flags().StringVar(&dataDir, handshake.FlagDataDir, "", "data `folder` of the server (default /var/lib/cubby for root, else ~/.local/share/cubby)")
	key.registerSecrets(cmd.Flags())
	return cmd
}

// checkProgram tells which file would run as the engine, and why that one.
func checkProgram(ctx context.Context, program engineProgram) doctor.Check {
	c := doctor.Check{Name: "engine's program", Status: doctor.OK}
	pack, ok := program.(enginePack)
	if !ok {
		c.Detail = "linked into this program"
		return c
	}
	reports, err := pack.Programs(ctx, false)
	if err != nil {
		c.Status, c.Detail = doctor.Fail, err.Error()
		if e, ok := errors.AsType[*cubby.Error](err); ok {
			c.Detail, c.Remedy = e.Message(), e.Hint
		}
		return c
	}
	r := reports[0]
	c.Detail = fmt.Sprintf("%s (%s)", r.Path, r.From)
	for _, p := range r.Passed {
		c.Detail += "; passed over: " + passedText(p)
	}
	if !r.From.Stays() {
		c.Status = doctor.Warn
		c.Detail = "unpacked anew at each start, which takes some 0.2 seconds: " + c.Detail
		c.Remedy = "give this user a cache that nobody else may write and from which programs can be run (XDG_CACHE_HOME), " +
			"or let root write it beside cubby: `cubby engine unpack`"
	}
	return c
}

// trial probes the engine by the only test that cannot be wrong: a sandbox.
type trial struct {
	open opener
	cfg  embedded.Config
}

// Probe implements doctor.Prober.
func (t trial) Probe(ctx context.Context) error {
	client, closeClient, err := t.open(ctx, t.cfg)
	if err != nil {
		return err
	}
	_, err = client.Create(ctx)
	return errors.Join(err, closeClient())
}

// tryNamespaces starts a process that does nothing as the child that holds the
// sandboxes is started.
func tryNamespaces(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "version")
	cmd.SysProcAttr = namespace.Attr()
	return cmd.Run()
}
