package egress

// presets are the hosts that the clients of package registries need, by the name
// that stands behind the @. They are exact names where a client's are known.
var presets = map[string][]string{
	"pypi": {"pypi.org:443", "files.pythonhosted.org:443"},
	"npm":  {"registry.npmjs.org:443"},
	"debian": {
		"deb.debian.org:80", "deb.debian.org:443", "security.debian.org:80", "security.debian.org:443",
	},
	"crates": {"index.crates.io:443", "static.crates.io:443", "crates.io:443"},
	"go":     {"proxy.golang.org:443", "sum.golang.org:443", "storage.googleapis.com:443"},
	"github": {
		"github.com:443", "github.com:22", "api.github.com:443", "codeload.github.com:443", "raw.githubusercontent.com:443",
		"objects.githubusercontent.com:443", "release-assets.githubusercontent.com:443",
	},
	"huggingface": {"huggingface.co:443", "*.hf.co:443"},
}

// Presets are the presets that there are, as they stand in a rule, sorted.
func Presets() []string {
	names := sortedKeys(presets)
	for i, name := range names {
		names[i] = "@" + name
	}
	return names
}
