package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby/internal/version"
)

func newVersion(std stdio) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(std.out, version.Line("cubby"))
			return err
		},
	}
}
