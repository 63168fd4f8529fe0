package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/terminal"
)

// maxSecret is more than any server keeps, in bytes.
const maxSecret = 64 << 10

func newSecrets(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Set, list and remove the secrets that a server keeps for headers",
		Long: "Set, list and remove the secrets that a server keeps for your team.\n\n" +
			"A secret is put into headers of what sandboxes send, outside of them: where a rule\n" +
			"of a sandbox's network has ${e2b.secrets.NAME} in a header's value. Nothing gives\n" +
			"a value back, and none is taken as an argument.\n\n" + serverHelp,
		Example: "  cubby secrets set api-key < key.txt\n" +
			"  cubby secrets set api-key --from-file key.txt\n" +
			"  cubby secrets list\n" +
			"  cubby secrets remove api-key",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSecretsSet(std), newSecretsList(std), newSecretsRemove(std))
	return cmd
}

func newSecretsSet(std stdio) *cobra.Command {
	var f serverFlags
	var file string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Keep a secret, or replace its value",
		Long: "Keep a secret, or replace the value of the one that has this name. The value is\n" +
			"what is in the file of --from-file or on standard input, without the line end\n" +
			"behind it; on a terminal it is asked for and not shown. It is one line, and has\n" +
			"at most 8 KiB.\n\n" +
			"Sandboxes that run and refer to the secret use the new value when this ends.\n\n" + serverHelp + "\n\n" +
			"Exit status: 2 for a name or a value that cannot be; 125 if the server cannot be\n" +
			"asked.",
		Example: "  cubby secrets set api-key < key.txt\n" +
			"  pass show api-key | cubby secrets set api-key --server https://cubby.example.com",
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              oneSecret,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.open(cmd)
			if err != nil {
				return err
			}
			value, err := readSecret(cmd.Context(), std, args[0], file, cmd.Flags().Changed("from-file"))
			if err != nil {
				return err
			}
			s, err := r.SetSecret(cmd.Context(), args[0], value)
			if err != nil {
				return wrongUse(r.explain(err))
			}
			done := "kept"
			if s.Version > 1 {
				done = "replaced; it is version " + strconv.FormatInt(s.Version, 10)
			}
			fmt.Fprintf(std.err, "secret %s %s\n", printable(s.Name), done)
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "from-file", "", "read the value from a `FILE` instead of standard input")
	f.register(cmd)
	return cmd
}

// oneSecret takes a name. It repeats none: who gives a value there must not have it in
// the logs of what called this.
func oneSecret(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return usagef("give the NAME of one secret: `cubby secrets list` shows those that there are")
	case len(args) > 1 || strings.Contains(args[0], "="):
		return usagef("give the NAME of one secret and nothing else: a value is in no argument, where other users of this machine see it;\n" +
			"`cubby secrets set NAME` reads it from standard input or --from-file")
	}
	return nil
}

// readSecret reads a value: one line, whose end is not part of it.
func readSecret(ctx context.Context, std stdio, name, file string, fromFile bool) (string, error) {
	in := std.in
	switch stdin, isFile := std.in.(*os.File); {
	case fromFile:
		f, err := os.Open(file)
		if err != nil {
			return "", usagef("--from-file: %w", err)
		}
		defer f.Close()
		in = f
	case isFile && terminal.Is(stdin):
		fmt.Fprintf(std.err, "Value of %s (it is not shown): ", printable(name))
		defer fmt.Fprintln(std.err)
		return readTyped(ctx, stdin)
	}
	b, err := io.ReadAll(io.LimitReader(in, maxSecret+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the value: %w", err)
	case len(b) > maxSecret:
		return "", usagef("the value is longer than %d bytes: no header has one like that", maxSecret)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if value == "" {
		return "", usagef("the value is empty: give it on standard input, or with --from-file")
	}
	return value, nil
}

// readTyped reads a line from a terminal that does not show it, and leaves the terminal
// as it was, also where a signal ends the command.
func readTyped(ctx context.Context, terminal *os.File) (string, error) {
	fd := int(terminal.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer onSignal(cancel)()
	type typed struct {
		line []byte
		err  error
	}
	read := make(chan typed, 1)
	go func() { // it ends with the program, if nobody types on
		line, err := term.ReadPassword(fd)
		read <- typed{line, err}
	}()
	select {
	case r := <-read:
		if r.err != nil && !errors.Is(r.err, io.EOF) {
			return "", fmt.Errorf("read the value: %w", r.err)
		}
		if len(r.line) == 0 {
			return "", usagef("the value is empty")
		}
		return string(r.line), nil
	case <-ctx.Done():
		if err := term.Restore(fd, before); err != nil {
			return "", err
		}
		if s, ok := errors.AsType[signalError](context.Cause(ctx)); ok {
			return "", status(128 + int(s.signal))
		}
		return "", context.Cause(ctx)
	}
}

func newSecretsList(std stdio) *cobra.Command {
	var f serverFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "list",
		Aliases:           []string{"ls"},
		Short:             "List the secrets of your team, without their values",
		Long:              "List the secrets that a server keeps for your team, without their values.\n\n" + serverHelp,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.open(cmd)
			if err != nil {
				return err
			}
			var all []cubby.Secret
			for s, err := range r.ListSecrets(cmd.Context()) {
				if err != nil {
					return r.explain(err)
				}
				all = append(all, s)
			}
			switch {
			case asJSON:
				return secretsJSON(std.out, all)
			case len(all) == 0:
				fmt.Fprintf(std.err, "no secrets at %v; `cubby secrets set NAME` keeps one\n", r.at)
				return nil
			}
			return writeSecrets(std.out, all)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object in a line for each")
	f.register(cmd)
	return cmd
}

// secretsJSON prints a line for each secret.
func secretsJSON(w io.Writer, all []cubby.Secret) error {
	enc := json.NewEncoder(terminal.Sanitize(w, terminal.Is(w)))
	enc.SetEscapeHTML(false)
	for _, s := range all {
		if err := enc.Encode(struct {
			ID        string            `json:"id"`
			Name      string            `json:"name"`
			Version   int64             `json:"version"`
			CreatedAt *time.Time        `json:"created_at"`
			UpdatedAt *time.Time        `json:"updated_at"`
			Metadata  map[string]string `json:"metadata,omitempty"`
		}{s.ID, s.Name, s.Version, nullable(s.CreatedAt), nullable(s.UpdatedAt), s.Metadata}); err != nil {
			return err
		}
	}
	return nil
}

func writeSecrets(w io.Writer, all []cubby.Secret) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tVERSION\tCREATED\tUPDATED\tMETADATA")
	for _, s := range all {
		fmt.Fprintln(t, strings.Join([]string{
			orDash(printable(s.Name)), strconv.FormatInt(s.Version, 10), shortTime(s.CreatedAt, "-"), shortTime(s.UpdatedAt, "-"),
			orDash(labels(s.Metadata)),
		}, "\t"))
	}
	return t.Flush()
}

func newSecretsRemove(std stdio) *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:        "remove NAME",
		Aliases:    []string{"rm"},
		SuggestFor: []string{"delete", "unset"},
		Short:      "Forget a secret",
		Long: "Forget a secret. Hosts whose headers refer to it cannot be reached from sandboxes\n" +
			"that run, until it is set again.\n\n" + serverHelp + "\n\n" +
			"Exit status: 1 if there is no such secret; 125 if the server cannot be asked.",
		Args: oneSecret,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return f.completeSecrets(cmd)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.open(cmd)
			if err != nil {
				return err
			}
			err = r.explain(r.RemoveSecret(cmd.Context(), args[0]))
			switch cubby.CodeOf(err) {
			case 0:
				fmt.Fprintf(std.err, "secret %s removed\n", args[0])
				return nil
			case cubby.CodeNotFound:
				report(std.err, err)
				return status(exitFailed)
			}
			return wrongUse(err)
		},
	}
	f.register(cmd)
	return cmd
}

// completeSecrets completes the names of the team's secrets.
func (f *serverFlags) completeSecrets(cmd *cobra.Command) ([]cobra.Completion, cobra.ShellCompDirective) {
	r, err := f.open(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	var all []cobra.Completion
	for s, err := range r.ListSecrets(ctx) {
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		all = append(all, cobra.Completion(printable(s.Name)))
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}
