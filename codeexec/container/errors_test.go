//go:build linux

package container

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec"
	"github.com/cubby-sandbox/cubby/codeexec/container/internal/dockertest"
)

func wantError(t *testing.T, err, is error, code cubby.Code, words ...string) {
	t.Helper()
	if err == nil || is != nil && !errors.Is(err, is) || cubby.CodeOf(err) != code {
		t.Errorf("got %v (%v), want %v (%v)", err, cubby.CodeOf(err), is, code)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q is missing in %q", word, err)
		}
	}
}

// newErr makes an executor that cannot be made.
func newErr(t *testing.T, cfg Config) error {
	t.Helper()
	e, err := New(t.Context(), cfg)
	if err == nil {
		e.Close()
		t.Fatal("there is no error")
	}
	return err
}

func TestConfigErrors(t *testing.T) {
	for _, tc := range []struct {
		cfg  Config
		word string
	}{
		{Config{}, "neither Image nor Dockerfile"},
		{Config{Image: "x", Dockerfile: "y"}, "both Image and Dockerfile"},
		{Config{Image: "x", CPUs: -1}, "negative"},
		{Config{Image: "x", Pull: "sometimes"}, "sometimes"},
		{Config{Image: "x", GPUs: "none"}, "GPUs"},
		{Config{Image: "x", Env: map[string]string{"A=B": "c"}}, "A=B"},
		{Config{Image: "x", Host: "nonsense"}, "nonsense"},
		{Config{Image: "x", Host: "ssh://me@host"}, "ssh"},
		{Config{Image: "x", Host: "tcp://"}, "tcp://"},
	} {
		wantError(t, newErr(t, tc.cfg), nil, cubby.CodeInvalidArgument, tc.word)
	}
}

func TestNoDaemon(t *testing.T) {
	dir := t.TempDir()
	t.Run("no socket", func(t *testing.T) {
		err := newErr(t, Config{Image: "x", Host: "unix://" + dir + "/none.sock"})
		wantError(t, err, ErrNoDaemon, cubby.CodeUnavailable, "none.sock", "install Docker", "systemctl start docker")
	})
	t.Run("a socket where nobody listens", func(t *testing.T) {
		path := filepath.Join(dir, "dead.sock")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()
		wantError(t, newErr(t, Config{Image: "x", Host: "unix://" + path}), ErrNoDaemon, cubby.CodeUnavailable, "install Docker")
	})
	t.Run("DOCKER_HOST", func(t *testing.T) {
		t.Setenv("DOCKER_HOST", "unix://"+dir+"/from-env.sock")
		wantError(t, newErr(t, Config{Image: "x"}), ErrNoDaemon, cubby.CodeUnavailable, "from-env.sock")
	})
	t.Run("something else than a daemon", func(t *testing.T) {
		path := filepath.Join(dir, "other.sock")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: http.NotFoundHandler()}
		go srv.Serve(l)
		defer srv.Close()
		if err := newErr(t, Config{Image: "x", Host: "unix://" + path}); cubby.CodeOf(err) == 0 {
			t.Errorf("got %v", err)
		}
	})
}

// Permissions do not bind root: a plain user tries.
func TestNoPermission(t *testing.T) {
	if path := os.Getenv("CUBBY_TEST_SOCKET"); path != "" {
		wantError(t, newErr(t, Config{Image: "x", Host: "unix://" + path}), ErrSocketPermission, cubby.CodePermissionDenied, "group docker", "usermod")
		return
	}
	dir, err := os.MkdirTemp("", "dkp")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "docker.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0)); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		wantError(t, newErr(t, Config{Image: "x", Host: "unix://" + path}), ErrSocketPermission, cubby.CodePermissionDenied, "group docker", "usermod")
		return
	}
	self := filepath.Join(dir, "test") // the test binary's own folder may be root's
	if err := copyFile(os.Args[0], self); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestNoPermission$", "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CUBBY_TEST_SOCKET="+path, "HOME="+dir)
	asNobody(cmd)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestNoPermission") {
		t.Errorf("%v\n%s", err, out)
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

func TestRemote(t *testing.T) {
	t.Run("nobody listens", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		err = newErr(t, Config{Image: "x", Host: "tcp://" + l.Addr().String()})
		wantError(t, err, ErrUnreachable, cubby.CodeUnavailable, "DOCKER_HOST")
	})
	t.Run("no such host", func(t *testing.T) {
		wantError(t, newErr(t, Config{Image: "x", Host: "tcp://host.invalid:2375"}), ErrUnreachable, cubby.CodeUnavailable, "host.invalid")
	})
	t.Run("a host that does not answer", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err = New(ctx, Config{Image: "x", Host: "tcp://" + l.Addr().String()})
		wantError(t, err, context.DeadlineExceeded, cubby.CodeTimeout)
	})
	cert, ca := certificate(t)
	secure, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Api-Version", "1.41") }), ErrorLog: quiet}
	go srv.Serve(secure)
	defer srv.Close()
	address := secure.Addr().String()
	t.Run("a certificate of somebody else", func(t *testing.T) {
		wantError(t, newErr(t, Config{Image: "x", Host: "https://" + address}), ErrTLS, cubby.CodeUnauthenticated, "DOCKER_CERT_PATH")
	})
	t.Run("a daemon that wants TLS", func(t *testing.T) {
		wantError(t, newErr(t, Config{Image: "x", Host: "tcp://" + address}), ErrTLS, cubby.CodeUnauthenticated)
	})
	t.Run("a daemon that has none", func(t *testing.T) {
		plain, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go srv.Serve(plain)
		err = newErr(t, Config{Image: "x", Host: "tcp://" + plain.Addr().String(), TLS: &TLS{CAFile: ca}})
		wantError(t, err, ErrTLS, cubby.CodeUnauthenticated)
	})
	t.Run("no certificates where they should be", func(t *testing.T) {
		t.Setenv("DOCKER_TLS_VERIFY", "1")
		t.Setenv("DOCKER_CERT_PATH", t.TempDir())
		wantError(t, newErr(t, Config{Image: "x", Host: "tcp://" + address}), ErrTLS, cubby.CodeUnauthenticated, "ca.pem")
	})
	t.Run("asked to verify, without a path: never in the clear", func(t *testing.T) {
		t.Setenv("DOCKER_TLS_VERIFY", "1")
		t.Setenv("HOME", t.TempDir())
		wantError(t, newErr(t, Config{Image: "x", Host: "tcp://" + address}), ErrTLS, cubby.CodeUnauthenticated, ".docker")
	})
	t.Run("certificates without verification", func(t *testing.T) {
		t.Setenv("DOCKER_CERT_PATH", t.TempDir())
		wantError(t, newErr(t, Config{Image: "x", Host: "tcp://" + address}), nil, cubby.CodeInvalidArgument, "DOCKER_TLS_VERIFY")
	})
	t.Run("the right certificate", func(t *testing.T) {
		d, err := connect(t.Context(), Config{Host: "tcp://" + address, TLS: &TLS{CAFile: ca}})
		if err != nil {
			t.Fatal(err)
		}
		d.api.Close()
	})
}

// certificate returns one for 127.0.0.1 and the file of its authority.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, ca
}

func TestImages(t *testing.T) {
	needDocker(t)
	t.Run("missing, and not to be pulled", func(t *testing.T) {
		_, err := try(t, Config{Image: "cubby-test:none", Pull: PullNever})
		wantError(t, err, ErrImageMissing, cubby.CodeNotFound, "docker pull cubby-test:none")
	})
	t.Run("missing, and cannot be pulled", func(t *testing.T) {
		_, err := try(t, Config{Image: "127.0.0.1:1/none:1", Pull: PullMissing})
		wantError(t, err, ErrImageMissing, cubby.CodeNotFound, "127.0.0.1:1/none:1", "reaches the registry")
	})
	t.Run("a bad name", func(t *testing.T) {
		_, err := try(t, Config{Image: "NO:GOOD:", Pull: PullMissing})
		if cubby.CodeOf(err) == 0 {
			t.Errorf("got %v", err)
		}
	})
	t.Run("without any program", func(t *testing.T) {
		_, err := try(t, Config{Image: imageEmpty})
		wantError(t, err, ErrNoInterpreter, cubby.CodeUnimplemented, "python:3-slim")
	})
	t.Run("a user that is not there", func(t *testing.T) {
		_, err := try(t, Config{User: "nosuchuser"})
		if err == nil || !strings.Contains(err.Error(), "nosuchuser") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("its python does not start: the last words are told", func(t *testing.T) {
		_, err := try(t, Config{Env: map[string]string{"PYTHONHOME": "/nowhere"}, Customize: func(c *container.Config, _ *container.HostConfig) {
			c.Entrypoint = []string{"sh", "-c", "echo the first words >&2; echo something is wrong here >&2; exit 7", "x"}
		}})
		wantError(t, err, ErrContainerGone, cubby.CodeSandboxGone, "exit code 7", "something is wrong here", "the first words")
	})
	t.Run("its python lies", func(t *testing.T) {
		for _, script := range []string{
			"echo garbage that is long enough to be a frame; sleep 100",
			`printf '\377\377\377\377H\0\0\0\0'; sleep 100`,
			`printf '\0\0\0\017H\0\0\0\0{"version":999}'; sleep 100`,
			"sleep 100",
		} {
			_, err := try(t, Config{StartTimeout: 10 * time.Second, Customize: func(c *container.Config, _ *container.HostConfig) {
				c.Entrypoint = []string{"sh", "-c", script, "x"}
			}})
			if err == nil || cubby.CodeOf(err) != cubby.CodeSandboxGone && cubby.CodeOf(err) != cubby.CodeTimeout {
				t.Errorf("%s: got %v", script, err)
			}
		}
	})
}

// TestLiar: an agent that greets and then lies spoils the call, and no more.
func TestLiar(t *testing.T) {
	needDocker(t)
	const hello = `printf '\0\0\0\110H\0\0\0\0{"version":1,"tools":{"python3":"/x","bash":"/x","sh":"/x"},"x":1234567}'; `
	for what, script := range map[string]string{
		"the end of a program that was not started": `printf '\0\0\0\0X\0\0\0\7'; sleep 100`,
		"output before the start":                   `head -c 20 >/dev/null; printf '\0\0\0\1O\0\0\0\1x'; sleep 100`,
		"more output than was asked for":            `head -c 20 >/dev/null; printf '\0\0\0\0S\0\0\0\1'; while :; do printf '\0\0\0\1O\0\0\0\1x'; done`,
		"an end that is none":                       `head -c 20 >/dev/null; printf '\0\0\0\0S\0\0\0\1\0\0\0\1X\0\0\0\1{'; sleep 100`,
		"more input than it was given":              `head -c 20 >/dev/null; printf '\0\0\0\0S\0\0\0\1\0\0\0\4A\0\0\0\1\377\377\377\377'; sleep 100`,
		"the end of everything":                     `head -c 20 >/dev/null`,
	} {
		t.Run(what, func(t *testing.T) {
			e, err := try(t, Config{Customize: func(c *container.Config, _ *container.HostConfig) {
				c.Entrypoint = []string{"sh", "-c", hello + script, "x"}
			}})
			if err == nil {
				_, err = e.ExecuteCode(t.Context(), python("print(1)"))
			}
			wantError(t, err, ErrContainerGone, cubby.CodeSandboxGone)
		})
	}
}

func TestDockerfile(t *testing.T) {
	needDocker(t)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("Dockerfile", "FROM "+imagePython+"\nARG WHAT\nCOPY . /context\nRUN echo \"built with $WHAT\" > /built\nENV FROM_IMAGE=yes\n")
	write("data/in.txt", "in")
	write("secret/key", "secret")
	write(".dockerignore", "secret\n*.log\n!keep.log\n")
	write("drop.log", "x")
	write("keep.log", "x")
	for what, cfg := range map[string]Config{"a folder": {Dockerfile: dir}, "a file": {Dockerfile: filepath.Join(dir, "Dockerfile")}} {
		t.Run(what, func(t *testing.T) {
			cfg.BuildNetwork, cfg.BuildArgs = "none", map[string]string{"WHAT": "care"}
			e := open(t, cfg)
			wantOutput(t, mustRun(t, e, bash("cat /built /context/data/in.txt; ls -A /context; echo $FROM_IMAGE")),
				"built with care\nin.dockerignore\nDockerfile\ndata\nkeep.log\nyes\n")
		})
	}
	t.Run("that fails", func(t *testing.T) {
		write("Dockerfile", "FROM "+imagePython+"\nRUN echo before; exit 3\n")
		_, err := try(t, Config{Dockerfile: dir, BuildNetwork: "none"})
		wantError(t, err, ErrBuild, cubby.CodeInvalidArgument, "non-zero code: 3", "before")
	})
	t.Run("that is none", func(t *testing.T) {
		write("Dockerfile", "NONSENSE\n")
		_, err := try(t, Config{Dockerfile: dir})
		wantError(t, err, ErrBuild, cubby.CodeInvalidArgument)
	})
	t.Run("that is not there", func(t *testing.T) {
		_, err := try(t, Config{Dockerfile: filepath.Join(dir, "none")})
		wantError(t, err, nil, cubby.CodeNotFound, "none")
	})
}

// TestDaemonDies: a daemon that dies while code runs is a typed error, soon; when
// it is back the executor works.
func TestDaemonDies(t *testing.T) {
	needDocker(t)
	d, err := dockertest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Stop)
	if err := images(d); err != nil {
		t.Fatal(err)
	}
	e, err := New(t.Context(), Config{Image: imagePython, Host: d.Host, Pull: PullNever, Timeout: 10 * time.Minute, StartTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	killed := whenRuns(t, d.Host, settled(t, e), "sleep 500", func(*client.Client) error {
		d.Kill()
		return nil
	})
	r, err := e.ExecuteCode(t.Context(), bash("echo begun; sleep 500"))
	wantError(t, err, ErrContainerGone, cubby.CodeSandboxGone)
	wantOutput(t, r, "begun\n")
	_, err = e.ExecuteCode(t.Context(), python("1"))
	wantError(t, err, ErrNoDaemon, cubby.CodeUnavailable, "install Docker")
	_, err = e.Engine().Manager().CreateWorkspace(t.Context(), "x", codeexec.WorkspacePolicy{})
	wantError(t, err, ErrNoDaemon, cubby.CodeUnavailable)
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	if err := d.Restart(); err != nil {
		t.Fatal(err)
	}
	r, err = e.ExecuteCode(t.Context(), python("print('back')"))
	if err != nil || r.Output != "back\n" || !r.StateLost {
		t.Errorf("got %+v, %v", r, err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	api, err := client.New(client.WithHost(d.Host))
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	left, err := api.ContainerList(t.Context(), client.ContainerListOptions{All: true})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("left behind: %+v, %v", left.Items, err)
	}
}
