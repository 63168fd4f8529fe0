package agentcmd

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/validate"
)

// models are some that --model takes, for completion: endpoints have more, and are not
// asked while somebody types.
var models = []string{
	"gpt-5", "gpt-5-mini", "gpt-5-nano", "gpt-4.1", "gpt-4.1-mini", "o4-mini",
	"claude-sonnet-4-5", "claude-opus-4-1", "claude-haiku-4-5",
}

// complete says how shells complete the values of flags.
func complete(cmd *cobra.Command) {
	words := func(words []string, d cobra.ShellCompDirective) cobra.CompletionFunc {
		return cobra.FixedCompletions(words, d)
	}
	only := cobra.ShellCompDirectiveNoFileComp
	for name, f := range map[string]cobra.CompletionFunc{
		"model":      words(models, only),
		"provider":   words([]string{"openai", "anthropic"}, only),
		"mode":       words([]string{string(agent.ModeBlocks), string(agent.ModeTools)}, only),
		"executor":   words(executors, only),
		"policy":     words(validate.Presets(), cobra.ShellCompDirectiveDefault), // or a file
		"memory":     words([]string{"512MiB", "1GiB", "2GiB", "4GiB"}, only),
		"timeout":    words([]string{"1m", "10m", "1h"}, only),
		"max-turns":  cobra.NoFileCompletions,
		"base-url":   cobra.NoFileCompletions,
		"env":        cobra.NoFileCompletions,
		"out":        words(nil, cobra.ShellCompDirectiveFilterDirs),
		"tools":      words(nil, cobra.ShellCompDirectiveFilterDirs),
		"skills":     words(nil, cobra.ShellCompDirectiveFilterDirs),
		"transcript": words([]string{"html"}, cobra.ShellCompDirectiveFilterFileExt),
		"system":     systemFiles,
	} {
		if err := cmd.RegisterFlagCompletionFunc(name, f); err != nil {
			panic(err) // a flag that is not there
		}
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
}

// systemFiles completes the file behind an @.
func systemFiles(_ *cobra.Command, _ []string, start string) ([]cobra.Completion, cobra.ShellCompDirective) {
	name, ok := strings.CutPrefix(start, "@")
	if !ok || strings.ContainsAny(name, `*?[\`) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	found, _ := filepath.Glob(name + "*") // the pattern is well-formed
	for i, path := range found {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			path += string(filepath.Separator)
		}
		found[i] = "@" + path
	}
	return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
