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
	"github.com/cubby-sandbox/cubby/cmd/internal/store"
)

// newKeys edits the database of a server, whether one runs or not: the server
// looks each key up when it is used.
func newKeys(std stdio) *cobra.Command {
	k := keys{std: std}
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
	return store.DefaultDir(os.Getenv, os.Geteuid())
}

// openExisting opens the database of a server that was started, or used with
// `keys create`, before; nil if there is none.
func (k *keys) openExisting(cmd *cobra.Command) (s *store.Store, dir string, err error) {
	if dir, err = k.dataDir(cmd); err != nil {
		return nil, "", err
	}
	if there, err := store.Exists(dir); err != nil || !there {
		return nil, dir, err
	}
	s, err = store.Open(cmd.Context(), dir)
	return s, dir, err
}

// closeStore closes s at the end of a function that returns *err, which stays as it
// is where nothing else fails: what an error is alone decides the exit status.
func closeStore(s *store.Store, err *error) {
	if closeErr := s.Close(); closeErr != nil {
		*err = errors.Join(*err, closeErr)
	}
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
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if team == "" {
				return usagef("--team needs a name")
			}
			dir, err := k.dataDir(cmd)
			if err != nil {
				return err
			}
			s, err := store.Open(cmd.Context(), dir)
			if err != nil {
				return err
			}
			defer closeStore(s, &err)
			teamID, err := ensureTeam(cmd.Context(), s, team)
			if err != nil {
				return wrongUse(err)
			}
			key, secret, err := s.CreateKey(cmd.Context(), teamID, name)
			if err != nil {
				return wrongUse(err)
			}
			if err := k.tell(key, secret); err != nil {
				// Nobody has read it, and nobody can again.
				_, revokeErr := s.RevokeKey(context.WithoutCancel(cmd.Context()), key.ID)
				return errors.Join(fmt.Errorf("the key could not be printed, and was revoked: %w", err), revokeErr)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what the key is for, shown in lists")
	cmd.Flags().StringVar(&team, "team", store.DefaultTeam, "the key's team, made if it is new; a team sees its own sandboxes only")
	k.json(cmd)
	return cmd
}

func (k *keys) tell(key store.Key, secret string) error {
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

// ensureTeam returns the ID of the team of that name, and makes it if need be.
func ensureTeam(ctx context.Context, s *store.Store, name string) (string, error) {
	t, err := s.CreateTeam(ctx, name)
	if !errors.Is(err, store.ErrExists) {
		return t.ID, err
	}
	teams, err := s.Teams(ctx)
	if err != nil {
		return "", err
	}
	for _, t := range teams {
		if t.Name == name {
			return t.ID, nil
		}
	}
	return "", fmt.Errorf("team %q: %w", name, store.ErrNotFound)
}

func (k *keys) list() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the keys, without their secrets",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			s, dir, err := k.openExisting(cmd)
			if err != nil {
				return err
			}
			all := []store.Key{}
			if s != nil {
				defer closeStore(s, &err)
				if all, err = s.Keys(cmd.Context()); err != nil {
					return err
				}
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

func writeKeys(w io.Writer, all []store.Key) error {
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
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			s, dir, err := k.openExisting(cmd)
			if err != nil {
				return err
			}
			err = store.ErrNotFound
			var key store.Key
			if s != nil {
				defer closeStore(s, &err)
				key, err = s.RevokeKey(cmd.Context(), args[0])
			}
			switch {
			case errors.Is(err, store.ErrNotFound):
				return &cubby.Error{Op: "revoke a key", Code: cubby.CodeNotFound, Err: fmt.Errorf("no key %q in %s", args[0], dir),
					Hint: "`cubby keys list` shows the IDs; a server of another user has another folder: --data-dir"}
			case errors.Is(err, store.ErrAmbiguous):
				return &cubby.Error{Op: "revoke a key", Code: cubby.CodeInvalidArgument,
					Err: fmt.Errorf("more than one key's ID begins with %q", args[0]), Hint: "give more of it"}
			case err != nil:
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

func toJSON(k store.Key) keyJSON {
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
