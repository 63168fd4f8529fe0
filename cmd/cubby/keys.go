package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/datafolder"
	"github.com/cubby-sandbox/cubby/cmd/internal/keyadmin"
)

// newKeys edits the database of a server, whether one runs or not: the server
// looks each key up when it is used.
func newKeys(std stdio, admin keyadmin.Admin) *cobra.Command {
	k := keys{std: std, admin: admin}
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make, list and revoke the API keys of this machine's server",
		Long: "Make, list and revoke the API keys of this machine's server.\n\n" +
			"It works on the server's data folder, whether the server runs or not. What it\n" +
			"changes holds at once.",
		Example: "  key=$(cubby keys create --name laptop)\n" +
			"  cubby keys list\n" +
			"  cubby keys revoke 3f9a",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&k.dir, "data-dir", "", "the server's data folder `DIR` (default /var/lib/cubby for root, else ~/.local/share/cubby)")
	cmd.AddCommand(k.create(), k.list(), k.revoke())
	return cmd
}

// keys is one `cubby keys`.
type keys struct {
	std    stdio
	admin  keyadmin.Admin
	dir    string
	asJSON bool
}

// dataDir is the folder of --data-dir, or the default one.
func (k *keys) dataDir(cmd *cobra.Command) (string, error) {
	if cmd.Flags().Changed("data-dir") {
		if k.dir == "" {
			return "", usagef("--data-dir needs a folder")
		}
		return k.dir, nil
	}
	return datafolder.Default(os.Getenv, os.Geteuid())
}

func (k *keys) json(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&k.asJSON, "json", false, "print JSON")
}

func (k *keys) create() *cobra.Command {
	var name, team string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a key and print its secret, once",
		Long: "Make a key and print its secret on standard output, alone on its line. It is\n" +
			"kept nowhere: whoever loses it makes a new key.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if team == "" {
				return usagef("--team needs a name")
			}
			dir, err := k.dataDir(cmd)
			if err != nil {
				return err
			}
			key, secret, err := k.admin.Create(cmd.Context(), dir, team, name)
			if err != nil {
				return wrongUse(err)
			}
			if err := k.tell(key, secret); err != nil {
				// Nobody has read it, and nobody can again.
				_, revokeErr := k.admin.Revoke(context.WithoutCancel(cmd.Context()), dir, key.ID)
				return errors.Join(fmt.Errorf("the key could not be printed, and was revoked: %w", err), revokeErr)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what the key is for, shown in lists")
	cmd.Flags().StringVar(&team, "team", keyadmin.DefaultTeam, "the key's team, made if it is new; a team sees its own sandboxes only")
	k.json(cmd)
	return cmd
}

func (k *keys) tell(key keyadmin.Key, secret string) error {
	if k.asJSON {
		return encodeJSON(k.std.out, struct {
			keyJSON
			Secret string `json:"secret"`
		}{toJSON(key), secret})
	}
	if _, err := fmt.Fprintln(k.std.out, secret); err != nil {
		return err
	}
	fmt.Fprintf(k.std.err, "key %s of team %s; the secret is not shown again\n", key.ID, key.Team)
	return nil
}

func (k *keys) list() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys, without their secrets",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := k.dataDir(cmd)
			if err != nil {
				return err
			}
			all, err := k.admin.List(cmd.Context(), dir)
			if err != nil {
				return err
			}
			if k.asJSON {
				list := make([]keyJSON, 0, len(all))
				for _, key := range all {
					list = append(list, toJSON(key))
				}
				return encodeJSON(k.std.out, list)
			}
			if len(all) == 0 {
				fmt.Fprintf(k.std.err, "no keys in %s; `cubby keys create` makes one (a server of another user has another folder: --data-dir)\n", dir)
				return nil
			}
			return writeKeys(k.std.out, all)
		},
	}
	k.json(cmd)
	return cmd
}

func writeKeys(w io.Writer, all []keyadmin.Key) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ID\tTEAM\tNAME\tKEY\tCREATED\tLAST USED\tREVOKED")
	for _, k := range all {
		fmt.Fprintln(t, strings.Join([]string{
			k.ID, k.Team, orDash(k.Name), k.Mask, shortTime(k.CreatedAt, "-"), shortTime(k.LastUsedAt, "never"), shortTime(k.RevokedAt, "-"),
		}, "\t"))
	}
	return t.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// shortTime is a time of a table, in the reader's zone.
func shortTime(t time.Time, none string) string {
	if t.IsZero() {
		return none
	}
	return t.Local().Format("2006-01-02 15:04")
}

func (k *keys) revoke() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a key; who uses it is refused from now on",
		Long: "Revoke a key; who uses it is refused from now on, by a server that runs as well.\n" +
			"Sandboxes that were made with it live on: they are their team's.\n\n" +
			"ID is what `cubby keys list` shows, or its first four or more digits.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usagef("give the ID of one key: `cubby keys list` shows it")
			}
			if strings.HasPrefix(args[0], "e2b_") {
				// Not quoted: it may be a secret.
				return usagef("a key is named by its ID, not by its secret: `cubby keys list` shows which is which")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := k.dataDir(cmd)
			if err != nil {
				return err
			}
			key, err := k.admin.Revoke(cmd.Context(), dir, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(k.std.err, "revoked key %s of team %s\n", key.ID, key.Team)
			return nil
		},
	}
}

// wrongUse gives a name that the store refuses the status of wrong use.
func wrongUse(err error) error {
	if cubby.CodeOf(err) == cubby.CodeInvalidArgument {
		return usageError{err}
	}
	return err
}

// keyJSON is a key in the output of --json. Times are RFC 3339, or null.
type keyJSON struct {
	ID         string     `json:"id"`
	TeamID     string     `json:"team_id"`
	Team       string     `json:"team"`
	Name       string     `json:"name"`
	Mask       string     `json:"mask"`
	CreatedAt  time.Time  `json:"created_at"`
	LastUsedAt *time.Time `json:"last_used_at"`
	RevokedAt  *time.Time `json:"revoked_at"`
}

func toJSON(k keyadmin.Key) keyJSON {
	return keyJSON{k.ID, k.TeamID, k.Team, k.Name, k.Mask, k.CreatedAt, nullable(k.LastUsedAt), nullable(k.RevokedAt)}
}

func nullable(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func encodeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
