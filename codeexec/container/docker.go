package container

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/moby/moby/client"

	"github.com/cubby-sandbox/cubby"
)

// docker is a daemon.
type docker struct {
	api  *client.Client
	host string
}

// connectTime is how long a daemon may take to answer a first time.
const connectTime = 15 * time.Second

// connect returns the daemon that the configuration and the environment mean. It
// answered.
func connect(ctx context.Context, cfg Config) (*docker, error) {
	const op = "connect to docker"
	host, secure, err := findHost(cfg.Host)
	if err != nil {
		return nil, err
	}
	opts := []client.Opt{client.WithHost(host), client.WithUserAgent("cubby")}
	if strings.HasPrefix(host, "tcp://") {
		files, err := tlsFiles(cfg.TLS, secure)
		if err != nil {
			return nil, err
		}
		if files != nil {
			opts = append(opts, client.WithTLSClientConfig(files.CAFile, files.CertFile, files.KeyFile))
		}
	}
	if version := os.Getenv(client.EnvOverrideAPIVersion); version != "" {
		opts = append(opts, client.WithAPIVersionFromEnv())
	}
	api, err := client.New(opts...)
	if err != nil {
		if strings.Contains(err.Error(), "TLS") || strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "tls:") || os.IsNotExist(err) {
			return nil, &cubby.Error{Op: op, Code: cubby.CodeUnauthenticated, Err: fmt.Errorf("%w: %w", ErrTLS, err), Hint: "check DOCKER_CERT_PATH (ca.pem, cert.pem, key.pem) or Config.TLS"}
		}
		return nil, &cubby.Error{Op: op, Code: cubby.CodeInvalidArgument, Err: err, Hint: "check Config.Host or DOCKER_HOST"}
	}
	d := &docker{api: api, host: host}
	pingCtx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	if _, err := api.Ping(pingCtx, client.PingOptions{NegotiateAPIVersion: true}); err != nil {
		defer api.Close()
		if ctx.Err() == nil && pingCtx.Err() != nil {
			return nil, d.unreachable(op, fmt.Errorf("no answer within %v", connectTime))
		}
		return nil, d.explain(ctx, op, err)
	}
	return d, nil
}

// findHost returns the daemon's address in the client's form, and whether it
// asks for TLS itself.
func findHost(host string) (address string, secure bool, err error) {
	if host == "" {
		host = os.Getenv(client.EnvOverrideHost)
	}
	if host == "" {
		return localHost(client.DefaultDockerHost), false, nil
	}
	bad := invalid(fmt.Sprintf("%.200q is no Docker host", host), "it is like unix:///run/docker.sock or tcp://host:2376")
	u, err := url.Parse(host)
	if err != nil {
		return "", false, bad
	}
	switch {
	case u.Scheme == "unix" || u.Scheme == "npipe":
		return host, false, nil
	case u.Scheme == "ssh":
		return "", false, invalid("a Docker host by ssh is not supported", "forward its socket: ssh -L /tmp/docker.sock:/var/run/docker.sock HOST, then use unix:///tmp/docker.sock")
	case u.Host == "":
	case u.Scheme == "tcp" || u.Scheme == "http" || u.Scheme == "https":
		return "tcp://" + u.Host + u.Path, u.Scheme == "https", nil
	}
	return "", false, bad
}

// localHost returns def, or where else a daemon of this machine has its socket.
func localHost(def string) string {
	if runtime.GOOS == "windows" {
		return def
	}
	places := []string{strings.TrimPrefix(def, "unix://")}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		places = append(places, filepath.Join(dir, "docker.sock"))
	}
	if home, err := os.UserHomeDir(); err == nil {
		places = append(places, filepath.Join(home, ".docker/run/docker.sock"), filepath.Join(home, ".docker/desktop/docker.sock"),
			filepath.Join(home, ".colima/default/docker.sock"), filepath.Join(home, ".rd/docker.sock"))
	}
	for _, path := range places {
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
			return "unix://" + path
		}
	}
	return def
}

// tlsFiles returns how to speak TLS, nil for not at all. DOCKER_TLS_VERIFY
// without DOCKER_CERT_PATH means the files in ~/.docker, as for Docker's own
// command: never a connection without TLS.
func tlsFiles(own *TLS, secure bool) (*TLS, error) {
	if own != nil {
		return own, nil
	}
	dir := os.Getenv(client.EnvOverrideCertPath)
	if os.Getenv(client.EnvTLSVerify) == "" {
		if dir != "" {
			return nil, invalid("DOCKER_CERT_PATH is set and DOCKER_TLS_VERIFY is not", "set DOCKER_TLS_VERIFY=1: a daemon that is not verified could be anyone")
		}
		if secure {
			return &TLS{}, nil
		}
		return nil, nil
	}
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, invalid("DOCKER_TLS_VERIFY is set, DOCKER_CERT_PATH is not, and there is no home folder", "set DOCKER_CERT_PATH")
		}
		dir = filepath.Join(home, ".docker")
	}
	return &TLS{CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}, nil
}
