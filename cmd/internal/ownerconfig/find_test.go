package ownerconfig

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/internal/fault"
)

// home is a user's environment whose configuration file has that content; none if
// it is "".
func home(t *testing.T, content string, env map[string]string) (getenv func(string) string, path string) {
	t.Helper()
	dir := t.TempDir()
	path = filepath.Join(dir, "cubby", "config.json")
	if content != "" {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func(name string) string {
		if name == "XDG_CONFIG_HOME" {
			return dir
		}
		return env[name]
	}, path
}

const local = `{"api_url":"http://127.0.0.1:8080","sandbox_url":"http://127.0.0.1:8081","api_key":"e2b_file"}`

// TestFind: address and key, and what said so; "FILE" stands for the file's path.
func TestFind(t *testing.T) {
	type env = map[string]string
	for _, test := range []struct {
		name string
		file string
		opts Options
		env  env
		want Server
	}{
		{"the file", local, Options{}, nil,
			Server{Config{"http://127.0.0.1:8080", "http://127.0.0.1:8081", "e2b_file"}, "FILE", "FILE"}},
		{"a file that names no sandbox URL", `{"api_url":"http://127.0.0.1:1","api_key":"e2b_file"}`, Options{}, nil,
			Server{Config{"http://127.0.0.1:1", "http://127.0.0.1:1", "e2b_file"}, "FILE", "FILE"}},
		{"the environment before the file", local, Options{}, env{"E2B_API_URL": "https://h", "E2B_API_KEY": "e2b_env"},
			Server{Config{"https://h", "https://h", "e2b_env"}, "E2B_API_URL", "E2B_API_KEY"}},
		{"the environment's own sandbox URL", local, Options{}, env{"E2B_API_URL": "https://h", "E2B_SANDBOX_URL": "https://b", "E2B_API_KEY": "e2b_env"},
			Server{Config{"https://h", "", "e2b_env"}, "E2B_API_URL", "E2B_API_KEY"}},
		{"a domain", local, Options{}, env{"E2B_DOMAIN": "e2b.example", "E2B_API_KEY": "e2b_env"},
			Server{Config{"https://api.e2b.example", "", "e2b_env"}, "E2B_DOMAIN", "E2B_API_KEY"}},
		{"the environment's key for the file's server", local, Options{}, env{"E2B_API_KEY": "e2b_env", "E2B_SANDBOX_URL": "https://b"},
			Server{Config{"http://127.0.0.1:8080", "http://127.0.0.1:8081", "e2b_env"}, "FILE", "E2B_API_KEY"}},
		{"the file's key where the environment names its server", local, Options{}, env{"E2B_API_URL": "http://127.0.0.1:8080/"},
			Server{Config{"http://127.0.0.1:8080", "http://127.0.0.1:8081", "e2b_file"}, "E2B_API_URL", "FILE"}},
		{"the flag before all", local, Options{URL: "https://f"}, env{"E2B_API_URL": "https://h", "E2B_SANDBOX_URL": "https://b", "E2B_API_KEY": "e2b_env"},
			Server{Config{"https://f", "https://f", "e2b_env"}, "--server", "E2B_API_KEY"}},
		{"the flag with the environment's server", local, Options{URL: "https://H:443"}, env{"E2B_API_URL": "https://h", "E2B_SANDBOX_URL": "https://b", "E2B_API_KEY": "e2b_env"},
			Server{Config{"https://H:443", "", "e2b_env"}, "--server", "E2B_API_KEY"}},
		{"the flag with the file's server", local, Options{URL: "HTTP://localhost:8080/"}, nil,
			Server{Config{"http://127.0.0.1:8080", "http://127.0.0.1:8081", "e2b_file"}, "--server", "FILE"}},
		{"no file is needed", "", Options{}, env{"E2B_API_URL": "https://h", "E2B_API_KEY": "e2b_env"},
			Server{Config{"https://h", "https://h", "e2b_env"}, "E2B_API_URL", "E2B_API_KEY"}},
		{"nor a sound one", "garbage", Options{}, env{"E2B_API_URL": "https://h", "E2B_API_KEY": "e2b_env"},
			Server{Config{"https://h", "https://h", "e2b_env"}, "E2B_API_URL", "E2B_API_KEY"}},
		{"plain HTTP to elsewhere", "", Options{URL: "http://192.0.2.1:80", PlainHTTP: true}, env{"E2B_API_KEY": "e2b_env"},
			Server{Config{"http://192.0.2.1:80", "http://192.0.2.1:80", "e2b_env"}, "--server", "E2B_API_KEY"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			getenv, path := home(t, test.file, test.env)
			got, err := Find(test.opts, getenv)
			got.URLFrom, got.KeyFrom = strings.ReplaceAll(got.URLFrom, path, "FILE"), strings.ReplaceAll(got.KeyFrom, path, "FILE")
			if err != nil || got != test.want {
				t.Errorf("%+v, %v\nwant %+v", got, err, test.want)
			}
		})
	}
}

// TestFindRefuses: each error names what it is about and what to do, and no key.
func TestFindRefuses(t *testing.T) {
	type env = map[string]string
	for _, test := range []struct {
		name string
		file string
		opts Options
		env  env
		code fault.Code
		says []string
	}{
		{"nothing", "", Options{}, nil, fault.Unavailable, []string{"E2B_API_URL is not set, and there is no FILE", "cubby serve"}},
		{"a key alone", "", Options{}, env{"E2B_API_KEY": "e2b_secret"}, fault.Unavailable, []string{"there is no FILE"}},
		{"a file that names none", `{"api_key":"e2b_secret"}`, Options{}, nil, fault.Unavailable, []string{"FILE names no server"}},
		{"a malformed file", "garbage", Options{}, nil, fault.Unavailable, []string{"FILE: not a JSON object", "move it away"}},
		{"a malformed file that may have the key", "garbage", Options{URL: "https://h"}, nil, fault.Unavailable, []string{"FILE: not a JSON object"}},
		{"the file's key for another server", `{"api_url":"http://u:pw@127.0.0.1:8080","api_key":"e2b_secret"}`, Options{URL: "http://127.0.0.1:9090"}, nil,
			fault.Unauthenticated, []string{"none for http://127.0.0.1:9090 (from --server)", "FILE keeps a key for http://u:xxxxx@127.0.0.1:8080 only", "set E2B_API_KEY"}},
		{"another scheme is another server", `{"api_url":"https://h","api_key":"e2b_secret"}`, Options{URL: "http://h:443"}, nil,
			fault.Unauthenticated, []string{"FILE keeps a key for https://h only"}},
		{"no key at all", `{"api_url":"https://h"}`, Options{}, nil, fault.Unauthenticated, []string{"none for https://h (from FILE)", "cubby keys create"}},
		{"no URL", local, Options{URL: "127.0.0.1:8080"}, nil, fault.InvalidArgument, []string{"--server", "write it like http://"}},
		{"no URL in the environment", "", Options{}, env{"E2B_API_URL": "localhost"}, fault.InvalidArgument, []string{"E2B_API_URL"}},
		{"a key of two lines", "", Options{URL: "https://h"}, env{"E2B_API_KEY": "e2b_secret\nX: y"}, fault.InvalidArgument, []string{"E2B_API_KEY has characters"}},
		{"plain HTTP to another machine", "", Options{URL: "http://192.0.2.1:8080"}, env{"E2B_API_KEY": "e2b_secret"}, fault.InvalidArgument,
			[]string{"192.0.2.1:8080 is on another machine", "https", "ssh -L 8080:127.0.0.1:8080 192.0.2.1", "--plain-http"}},
		{"to a name", "", Options{}, env{"E2B_API_URL": "http://localhost.example", "E2B_API_KEY": "e2b_secret"}, fault.InvalidArgument, []string{"another machine"}},
		{"to another machine's sandboxes", "", Options{}, env{"E2B_API_URL": "https://h", "E2B_SANDBOX_URL": "http://h", "E2B_API_KEY": "e2b_secret"},
			fault.InvalidArgument, []string{"http://h is on another machine"}},
		{"a file of another machine", `{"api_url":"http://h","api_key":"e2b_secret"}`, Options{}, nil, fault.InvalidArgument, []string{"another machine"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			getenv, path := home(t, test.file, test.env)
			got, err := Find(test.opts, getenv)
			if got != (Server{}) || fault.CodeOf(err) != test.code {
				t.Fatalf("%+v, %v: %v", got, fault.CodeOf(err), err)
			}
			said := strings.ReplaceAll(err.Error(), path, "FILE")
			for _, want := range test.says {
				if !strings.Contains(said, want) {
					t.Errorf("%q is not in %q", want, said)
				}
			}
			if strings.Contains(said, "secret") || strings.Contains(said, "pw@") {
				t.Errorf("it tells a secret: %s", said)
			}
		})
	}
	if _, err := Find(Options{}, func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), "neither HOME nor XDG_CONFIG_HOME") {
		t.Errorf("without a home: %v", err)
	}
}

// TestHere: what is sent to this machine's own addresses stays on it.
func TestHere(t *testing.T) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		if ip := a.(*net.IPNet).IP.String(); !isHere(ip) {
			t.Errorf("%s is not here", ip)
		}
	}
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true,
		"192.0.2.1": false, "2001:db8::1": false, "example.com": false, "127.0.0.1.example.com": false, "0x7f.1": false, "": false,
	} {
		if got := isHere(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}
