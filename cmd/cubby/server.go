package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/cmd/internal/ownerconfig"
)

// serverHelp says how a command finds its server.
const serverHelp = `The server is that of --server, else of E2B_API_URL, else of E2B_DOMAIN
(https://api.DOMAIN), else the one of this user's own "cubby serve", whose first
start wrote address and key to ~/.config/cubby/config.json. The key is
E2B_API_KEY, else that of the file, which goes to the file's server only.`

// remote is a server of sandboxes, as a client sees it.
type remote struct {
	*cubby.Client
	at ownerconfig.Server
}

func openRemote(opts ownerconfig.Options) (*remote, error) {
	at, err := ownerconfig.Find(opts, os.Getenv)
	if err != nil {
		if opts.URL != "" && ownerconfig.CheckURL(opts.URL) != nil {
			err = usageError{err}
		}
		return nil, err
	}
	c, err := cubby.NewClient(cubby.Config{APIURL: at.APIURL, SandboxURL: at.SandboxURL, APIKey: at.APIKey})
	if err != nil {
		return nil, err
	}
	return &remote{c, at}, nil
}

// serverFlags are those of every command about the sandboxes of a server.
type serverFlags struct{ opts ownerconfig.Options }

func (f *serverFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.opts.URL, "server", "", "`URL` of the server (default $E2B_API_URL, $E2B_DOMAIN, then that of cubby serve)")
	plainHTTPFlag(cmd.Flags(), &f.opts)
	_ = cmd.RegisterFlagCompletionFunc("server", cobra.NoFileCompletions) // fails for a flag that is not there only
}

func plainHTTPFlag(fl *pflag.FlagSet, opts *ownerconfig.Options) {
	fl.BoolVar(&opts.PlainHTTP, "plain-http", false, "allow a key to travel unencrypted to another machine")
}

func (f *serverFlags) open(cmd *cobra.Command) (*remote, error) {
	if f.opts.URL == "" && cmd.Flags().Changed("server") {
		return nil, usagef("--server: nothing is given")
	}
	return openRemote(f.opts)
}

// explain adds to an error which server it is about and what said so, and what
// can be done about a server that does not answer or does not take the key.
func (r *remote) explain(err error) error {
	e, ok := errors.AsType[*cubby.Error](err)
	if !ok {
		return err
	}
	told := *e // it may be known to others
	_, unreached := errors.AsType[*net.OpError](err)
	switch {
	case e.Code == cubby.CodeUnauthenticated:
		told.Err = fmt.Errorf("%v does not take the API key of %s", r.at, r.at.KeyFrom)
		told.Hint = "`cubby keys list` shows the keys of a server on its machine, `cubby keys create` makes one"
		if r.at.KeyFrom == ownerconfig.KeyVariable && r.at.URLFrom != ownerconfig.URLVariable {
			told.Hint = "unset " + ownerconfig.KeyVariable + ", if it is another server's; " + told.Hint
		}
	case unreached:
		told.Hint = fmt.Sprintf("the server is %v: start it with `cubby serve`, or name another one with --server or %s", r.at, ownerconfig.URLVariable)
	case e.Hint == "":
		told.Hint = fmt.Sprintf("the server is %v", r.at)
	}
	return &told
}

// minPrefix is how much of an id stands for all of it: as with the keys' ids.
const minPrefix = 4

// withID calls do with the id that text is, or if there is no such sandbox, with
// the one id of a live sandbox that begins with text. It returns that id.
func (r *remote) withID(ctx context.Context, text string, do func(id string) error) (id string, err error) {
	err = do(text)
	if cubby.CodeOf(err) != cubby.CodeNotFound {
		return text, err
	}
	var found []string
	for info, lerr := range r.List(ctx, cubby.ListOptions{}) {
		if lerr != nil {
			return text, lerr
		}
		if len(info.ID) > len(text) && strings.HasPrefix(info.ID, text) {
			found = append(found, info.ID)
		}
	}
	e, _ := errors.AsType[*cubby.Error](err)
	told := *e
	switch {
	case len(found) == 0:
		told.Hint = fmt.Sprintf("`cubby ls` shows the sandboxes of %v", r.at)
		return text, &told
	case len(text) < minPrefix:
		told.Hint = fmt.Sprintf("give the whole id, or at least %d letters of it: did you mean %s?", minPrefix, found[0])
		return text, &told
	case len(found) > 1:
		told.Code, told.Hint = cubby.CodeInvalidArgument, "give more of it"
		told.Err = fmt.Errorf("the ids of %d sandboxes begin with %q, such as %s and %s", len(found), text, found[0], found[1])
		return text, &told
	}
	return found[0], do(found[0])
}

// completionTimeout bounds what a shell waits for when it asks for ids.
const completionTimeout = 2 * time.Second

// completeIDs completes the ids of live sandboxes, those that are not given yet.
func (f *serverFlags) completeIDs(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	r, err := f.open(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	var all []cobra.Completion
	for info, err := range r.List(ctx, cubby.ListOptions{}) {
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		if !slices.Contains(args, info.ID) {
			all = append(all, cobra.CompletionWithDesc(info.ID, printable(info.Template)+", "+age(time.Since(info.StartedAt))))
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp
}
