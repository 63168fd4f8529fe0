package egress

import "sync"

// presets are the hosts that a registry's clients need to install from it, by the
// name that stands behind the @; publishing is another matter. A wildcard stands
// only where the hosts change.
var presets = map[string][]string{
	// pip, uv: https://warehouse.pypa.io/architecture.html
	"pypi": {"pypi.org:443", "files.pythonhosted.org:443"},

	// npm and pnpm; yarn 1 asks the second, an alias of the first.
	"npm": {"registry.npmjs.org:443", "registry.yarnpkg.com:443"},

	// https://www.debian.org/mirror/list: the CDN that Debian's own lists of
	// sources name. apt checks signatures and uses HTTP.
	"debian": {
		"deb.debian.org:80", "deb.debian.org:443",
		"security.debian.org:80", "security.debian.org:443",
	},

	// The sparse index, the files that its config.json leads to, and the API of
	// cargo search: https://doc.rust-lang.org/cargo/reference/registry-index.html
	"crates": {"index.crates.io:443", "static.crates.io:443", "crates.io:443"},

	// https://proxy.golang.org; larger archives are redirected to a bucket in the
	// storage that every customer of Google Cloud shares (golang/go#52908).
	"go": {"proxy.golang.org:443", "sum.golang.org:443", "storage.googleapis.com:443"},

	// git over HTTPS and SSH, its large files, archives, releases, raw files and
	// the API: https://docs.github.com/en/get-started/using-github
	"github": {
		"github.com:443", "github.com:22", "ssh.github.com:443",
		"api.github.com:443", "uploads.github.com:443", "codeload.github.com:443", "gist.github.com:443",
		"raw.githubusercontent.com:443", "gist.githubusercontent.com:443", "media.githubusercontent.com:443",
		"objects.githubusercontent.com:443", "release-assets.githubusercontent.com:443",
		"github-cloud.githubusercontent.com:443", "github-cloud.s3.amazonaws.com:443",
	},

	// https://huggingface.co/.well-known/meta.json: the files come from hosts by
	// region, of which new ones are added.
	"huggingface": {"huggingface.co:443", "hf.co:443", "*.hf.co:443", "cdn-lfs.huggingface.co:443"},
}

// Presets are the presets that there are, as they stand in a rule, sorted.
func Presets() []string {
	names := sortedKeys(presets)
	for i, name := range names {
		names[i] = "@" + name
	}
	return names
}

// PresetHosts are the hosts that are built in for a preset, whose name has no @.
func PresetHosts(name string) []string { return presets[name] }

// presetHosts are the hosts that a preset stands for on this machine.
func (p *Policy) presetHosts(name string) []string {
	if hosts, ok := p.registries[name]; ok {
		return hosts
	}
	return presets[name]
}

// ReachesPreset says whether the policy allows one of a preset's hosts at least. The
// name has no @.
func (p *Policy) ReachesPreset(name string) bool {
	for _, host := range p.presetHosts(name) {
		e, err := parseEntry(host)
		if err == nil && !e.below && p.Host(e.name, e.ports.low, TCP).Allowed {
			return true
		}
	}
	return false
}

// presetOf finds the preset that names a host and port itself.
var presetOf = sync.OnceValue(func() map[hostPort]string {
	out := map[hostPort]string{}
	for _, preset := range sortedKeys(presets) {
		for _, host := range presets[preset] {
			if e, err := parseEntry(host); err == nil && !e.below {
				out[hostPort{e.name, e.ports.low}] = preset
			}
		}
	}
	return out
})
