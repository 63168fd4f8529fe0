package main

import (
	"errors"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby/internal/child"
	"github.com/cubby-sandbox/cubby/internal/handshake"
)

// newServe is the process that an embedding program starts; `cubby serve` for
// people will be its public form.
func newServe(stderr io.Writer) *cobra.Command {
	var opts child.Options
	var private, verbose bool
	cmd := &cobra.Command{
		Use:    "serve",
		Short:  "Serve sandboxes to the program that started this process",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !private {
				return errors.New("serve: only --" + handshake.FlagPrivate + " is there yet")
			}
			level := slog.LevelWarn
			if verbose {
				level = slog.LevelDebug
			}
			opts.Logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
			return child.Serve(cmd.Context(), opts)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&private, handshake.FlagPrivate, false, "serve on the descriptors of an embedding program")
	f.StringVar(&opts.Expect, handshake.FlagExpect, "", "version of that program")
	f.StringVar(&opts.RunDir, handshake.FlagRunDir, "", "folder for sockets and mounts, removed at the end")
	f.StringVar(&opts.Python, handshake.FlagPython, "", "python3 of the sandboxes")
	f.StringVar(&opts.Node, handshake.FlagNode, "", "node of the sandboxes")
	f.BoolVar(&verbose, handshake.FlagVerbose, false, "log everything")
	return cmd
}
