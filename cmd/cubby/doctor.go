package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newDoctor(std stdio) *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can do, what is missing and how to get it",
		Args:  noArgs,
		RunE:  func(*cobra.Command, []string) error { return errors.New("doctor: not there yet") },
	}
}
