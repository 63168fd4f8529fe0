//go:build linux

package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
)

// trpcPython sends what the Cube executor of trpc-agent-python sends by E2B's
// Python package: everything as root, by envd alone, files in archives and input
// in heredocs.
type trpcPython struct {
	box
	server *server
}

// pythonHeaders are of E2B's Python package.
var pythonHeaders = []string{"User-Agent", "e2b-python-sdk/2.45.1", "Accept", "*/*", "Accept-Encoding", "gzip, deflate"}

func (c *trpcPython) control(t *testing.T, method, path string, body any) answer {
	t.Helper()
	return call(t, http.DefaultClient, method, c.server.URL+path, body, "X-API-KEY", c.server.Key, "User-Agent", "e2b-python-sdk/2.45.1")
}

// run runs a command, and renews the sandbox's life as the executor does after
// each.
func (c *trpcPython) run(t *testing.T, text string, opts ...func(*command)) (outcome, error) {
	t.Helper()
	cmd := command{Text: text, User: "root", Envs: map[string]string{}, Timeout: "60000"}
	for _, opt := range opts {
		opt(&cmd)
	}
	out, err := run(t.Context(), http.DefaultClient, c.server.URL, cmd, append(c.routed(portEnvd), pythonHeaders...)...)
	if a := c.control(t, "POST", "/sandboxes/"+c.ID+"/timeout", `{"timeout":3600}`); a.Status != http.StatusNoContent {
		t.Fatalf("timeout: %v", a)
	}
	return out, err
}

func (c *trpcPython) must(t *testing.T, text string, opts ...func(*command)) outcome {
	t.Helper()
	out, err := c.run(t, text, opts...)
	if err != nil || out.Exit != 0 {
		t.Fatalf("%.300s: %+v, %v", text, out, err)
	}
	return out
}

// write uploads by a multipart form whose part is named by the whole path.
func (c *trpcPython) write(t *testing.T, path string, data []byte) {
	t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreatePart(textproto.MIMEHeader{
		"Content-Disposition": {fmt.Sprintf(`form-data; name="file"; filename=%q`, path)},
		"Content-Type":        {"application/octet-stream"},
	})
	if err == nil {
		_, err = part.Write(data)
	}
	if err := errors.Join(err, form.Close()); err != nil {
		t.Fatal(err)
	}
	header := append(c.routed(portEnvd), "Content-Type", form.FormDataContentType(), "User-Agent", "e2b-python-sdk/2.45.1")
	var wrote []struct{ Path, Name, Type string }
	call(t, http.DefaultClient, "POST", c.server.URL+"/files?"+url.Values{"path": {path}, "username": {"root"}}.Encode(), &body, header...).decode(t, 200, &wrote)
	if len(wrote) != 1 || wrote[0].Path != path {
		t.Fatalf("%+v", wrote)
	}
}

func (c *trpcPython) read(t *testing.T, path string) []byte {
	t.Helper()
	a := call(t, http.DefaultClient, "GET", c.server.URL+"/files?"+url.Values{"path": {path}, "username": {"root"}}.Encode(), nil, c.routed(portEnvd)...)
	if a.Status != 200 {
		t.Fatalf("%v", a)
	}
	return a.Body
}

// TestTrpcAgentPython is the life of an agent's sandbox as that executor lives
// it, by routing headers: the package is given the server's address.
func TestTrpcAgentPython(t *testing.T) {
	s := start(t)
	c := &trpcPython{server: s}
	c.control(t, "POST", "/sandboxes", `{"templateID":"code-interpreter-v1","timeout":3600,"metadata":{},"envVars":{},"secure":true,"allow_internet_access":true,"autoPause":false}`).
		decode(t, http.StatusCreated, &c.box)
	t.Cleanup(func() {
		try(context.Background(), http.DefaultClient, "DELETE", s.URL+"/sandboxes/"+c.ID, nil, "X-API-KEY", s.Key)
	})
	if c.Token == "" {
		t.Fatal("secure, but no token")
	}
	const ws = "/workspace/cube_agent/ws_demo-1_1"

	t.Run("attach", func(t *testing.T) {
		var again box
		c.control(t, "POST", "/sandboxes/"+c.ID+"/connect", `{"timeout":300}`).decode(t, 200, &again)
		if again.Token != c.Token {
			t.Error("connect answers another token")
		}
		var info struct{ State string }
		c.control(t, "GET", "/sandboxes/"+c.ID, nil).decode(t, 200, &info)
		if info.State != "running" {
			t.Errorf("%+v", info)
		}
	})
	t.Run("a workspace below the root", func(t *testing.T) {
		c.must(t, fmt.Sprintf("set -e; mkdir -p '%[1]s' '%[1]s/work' '%[1]s/out' '%[1]s/skills' '%[1]s/runs'", ws))
		if out := c.must(t, "id -un; stat -c %U "+ws); out.Stdout != "root\nroot\n" {
			t.Errorf("%+v", out)
		}
	})
	t.Run("a Python block by a heredoc", func(t *testing.T) {
		if out := c.must(t, "python3 << 'TRPC_STDIN_EOF_0a1b'\nimport sys\nprint(6*7)\nprint('why', file=sys.stderr)\n\nTRPC_STDIN_EOF_0a1b"); out.Stdout != "42\n" || out.Stderr != "why\n" {
			t.Errorf("%+v", out)
		}
		out, err := c.run(t, "python3 << 'TRPC_STDIN_EOF_0a1b'\nraise SystemExit(3)\nTRPC_STDIN_EOF_0a1b")
		if err != nil || out.Exit != 3 || out.Error != "exit status 3" {
			t.Errorf("%+v, %v", out, err)
		}
	})
	t.Run("a Bash block by a heredoc", func(t *testing.T) {
		if out := c.must(t, "bash -l << 'TRPC_STDIN_EOF_0a1b'\nread -r line < <(echo \"a 'quoted' $((1+1))\")\necho \"$line\"\nTRPC_STDIN_EOF_0a1b"); out.Stdout != "a 'quoted' 2\n" {
			t.Errorf("%+v", out)
		}
	})
	t.Run("input that is no text", func(t *testing.T) {
		input := bytes.Repeat([]byte{0xff, 0, 0xfe, '\n'}, 20_000)
		encoded := base64.StdEncoding.EncodeToString(input)
		var lines strings.Builder
		for len(encoded) > 0 {
			n := min(76, len(encoded))
			lines.WriteString(encoded[:n] + "\n")
			encoded = encoded[n:]
		}
		out := c.must(t, "base64 -d << 'TRPC_STDIN_EOF_0a1b' | wc -c\n"+lines.String()+"TRPC_STDIN_EOF_0a1b")
		if strings.TrimSpace(out.Stdout) != fmt.Sprint(len(input)) {
			t.Errorf("%+v", out)
		}
	})
	t.Run("a program in the workspace, with its environment", func(t *testing.T) {
		c.write(t, ws+"/work/script.py", []byte("import os, sys\nprint(os.environ['WORKSPACE_DIR'], os.getcwd(), sys.stdin.read())\n"))
		env := func(cmd *command) { cmd.Envs["WORKSPACE_DIR"], cmd.Envs["OUTPUT_DIR"] = ws, ws+"/out" }
		out := c.must(t, fmt.Sprintf("set -e; mkdir -p '%[1]s/runs/run_1' '%[1]s'; cd '%[1]s'; 'python3' 'work/script.py' << 'TRPC_STDIN_EOF_1'\nin\nTRPC_STDIN_EOF_1", ws), env)
		if out.Stdout != ws+" "+ws+" in\n\n" {
			t.Errorf("%+v", out)
		}
	})
	t.Run("a folder there and back, in archives", func(t *testing.T) {
		var archive bytes.Buffer
		tw := tar.NewWriter(&archive)
		content := bytes.Repeat([]byte("data "), 300_000)
		for _, h := range []*tar.Header{
			{Name: "./", Mode: 0o755, Typeflag: tar.TypeDir},
			{Name: "./data.txt", Mode: 0o600, Size: int64(len(content))},
			{Name: "./link", Linkname: "data.txt", Typeflag: tar.TypeSymlink},
		} {
			if err := tw.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
			if h.Size > 0 {
				if _, err := tw.Write(content); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := tw.Close(); err != nil {
			t.Fatal(err)
		}
		c.write(t, "/tmp/.cube_upload_01.tar", archive.Bytes())
		c.must(t, fmt.Sprintf("set -e; mkdir -p '%[1]s/skills/s'; tar -xf '/tmp/.cube_upload_01.tar' -C '%[1]s/skills/s'", ws))
		c.must(t, "rm -f '/tmp/.cube_upload_01.tar'")
		var info struct{ Entry struct{ Type, Owner string } }
		call(t, http.DefaultClient, "POST", s.URL+"/filesystem.Filesystem/Stat", map[string]string{"path": ws + "/skills/s"},
			append(c.routed(portEnvd), "Connect-Protocol-Version", "1", "Authorization", "Basic cm9vdDo=")...).decode(t, 200, &info)
		if info.Entry.Type != "FILE_TYPE_DIRECTORY" || info.Entry.Owner != "root" {
			t.Errorf("%+v", info)
		}
		c.must(t, fmt.Sprintf("tar -cf '/tmp/.cube_download_01.tar' -C '%s/skills/s' .", ws))
		tr, names := tar.NewReader(bytes.NewReader(c.read(t, "/tmp/.cube_download_01.tar"))), []string{}
		for {
			h, err := tr.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, h.Name)
			if h.Name == "./data.txt" {
				if back, err := io.ReadAll(tr); err != nil || !bytes.Equal(back, content) || h.Mode != 0o600 {
					t.Errorf("%d bytes, mode %o, %v", len(back), h.Mode, err)
				}
			}
		}
		if len(names) != 3 {
			t.Errorf("%q", names)
		}
	})
	t.Run("files by pattern, by a heredoc in Python", func(t *testing.T) {
		out := c.must(t, "python3 - <<'PY'\nimport glob, os\nos.chdir("+fmt.Sprintf("%q", ws)+")\nfor p in sorted(glob.glob('**/*.py', recursive=True)): print(os.path.abspath(p))\nPY")
		if out.Stdout != ws+"/work/script.py\n" {
			t.Errorf("%+v", out)
		}
	})
	t.Run("a time-out ends the stream and the program", func(t *testing.T) {
		_, err := c.run(t, "sleep 4712", func(cmd *command) { cmd.Timeout = "800" })
		if e, ok := errors.AsType[*rpcError](err); !ok || e.Code != "deadline_exceeded" {
			t.Errorf("%v", err)
		}
		until(t, "the program ends", func() error {
			if out := c.must(t, "pgrep -f 'sleep 471[2]' || true"); out.Stdout != "" {
				return fmt.Errorf("still there: %s", out.Stdout)
			}
			return nil
		})
	})
	t.Run("clean up, kill, and what a stale id answers", func(t *testing.T) {
		c.must(t, "rm -rf '"+ws+"'")
		for _, want := range []int{http.StatusNoContent, http.StatusNotFound} {
			if a := c.control(t, "DELETE", "/sandboxes/"+c.ID, nil); a.Status != want {
				t.Errorf("kill: %v", a)
			}
		}
		for _, a := range []answer{
			c.control(t, "GET", "/sandboxes/"+c.ID, nil),
			c.control(t, "POST", "/sandboxes/"+c.ID+"/connect", `{"timeout":300}`),
			c.control(t, "POST", "/sandboxes/"+c.ID+"/timeout", `{"timeout":300}`),
		} {
			var body struct{ Code int }
			if a.decode(t, http.StatusNotFound, &body); body.Code != http.StatusNotFound {
				t.Errorf("%v", a)
			}
		}
	})
}
