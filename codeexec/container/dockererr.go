package container

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/internal/execerr"
)

// What can go wrong with Docker. Each comes wrapped in a *cubby.Error of the code
// in parentheses, with a hint; errors.Is finds it.
var (
	// ErrNoDaemon: no daemon listens where it should on this machine (unavailable).
	ErrNoDaemon = errors.New("no Docker daemon is running here")
	// ErrSocketPermission: the daemon's socket is there, and this user may not use
	// it (permission denied).
	ErrSocketPermission = errors.New("no permission on the Docker daemon's socket")
	// ErrUnreachable: the daemon's host does not answer (unavailable).
	ErrUnreachable = errors.New("the Docker host cannot be reached")
	// ErrTLS: the two sides do not agree on TLS (unauthenticated).
	ErrTLS = errors.New("no secure connection to the Docker daemon")
	// ErrImageMissing: the daemon does not have the image, and may not or cannot
	// pull it (not found).
	ErrImageMissing = errors.New("the image is missing")
	// ErrBuild: the Dockerfile could not be built (invalid argument).
	ErrBuild = errors.New("the image cannot be built")
	// ErrNoInterpreter: the image has neither Python 3 nor a shell
	// (unimplemented).
	ErrNoInterpreter = errors.New("the image has neither python3 nor sh")
	// ErrContainerGone: the container ended while it was used, or cannot be
	// reached any more (sandbox gone). The next call gets a new one.
	ErrContainerGone = errors.New("the container is gone")
)

func invalid(text, hint string) error {
	return &cubby.Error{Op: "container executor", Code: cubby.CodeInvalidArgument, Err: errors.New(text), Hint: hint}
}

// explain turns an error of a call to the daemon into one that says what is wrong
// and what to do about it.
func (d *docker) explain(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*cubby.Error](err); ok {
		return execerr.Wrap(op, cubby.CodeInternal, err)
	}
	if ctx.Err() != nil {
		return execerr.Wrap(op, cubby.CodeCanceled, context.Cause(ctx))
	}
	if client.IsErrConnectionFailed(err) || errors.Is(err, net.ErrClosed) || isDial(err) || strings.Contains(err.Error(), plainToTLS) {
		return d.unreachable(op, err)
	}
	code := cubby.CodeInternal
	switch {
	case errdefs.IsNotFound(err):
		code = cubby.CodeNotFound
	case errdefs.IsInvalidArgument(err):
		code = cubby.CodeInvalidArgument
	case errdefs.IsConflict(err):
		code = cubby.CodeConflict
	case errdefs.IsUnauthorized(err):
		code = cubby.CodeUnauthenticated
	case errdefs.IsPermissionDenied(err):
		code = cubby.CodePermissionDenied
	case errdefs.IsUnavailable(err):
		code = cubby.CodeUnavailable
	}
	return &cubby.Error{Op: op, Code: code, Err: fmt.Errorf("docker: %w", err)}
}

// plainToTLS is what a daemon with TLS answers to a client without.
const plainToTLS = "HTTP request to an HTTPS server"

func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ECONNREFUSED)
}

// unreachable finds out why the daemon does not answer: it tries once more,
// since the client's own errors do not tell these apart.
func (d *docker) unreachable(op string, err error) error {
	u, perr := url.Parse(d.host)
	local := perr == nil && (u.Scheme == "unix" || u.Scheme == "npipe")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, dialErr := d.api.Dialer()(ctx)
	if dialErr == nil {
		conn.Close()
	}
	cause := err
	if dialErr != nil {
		cause = dialErr
	}
	switch {
	case errors.Is(cause, os.ErrPermission):
		return &cubby.Error{
			Op: op, Code: cubby.CodePermissionDenied, Err: fmt.Errorf("%w: %s: %w", ErrSocketPermission, d.host, cause),
			Hint: "add yourself to the group docker (`sudo usermod -aG docker $USER`, then log in again; its members are as powerful as root), or use rootless Docker",
		}
	case isTLS(cause) || isTLS(err):
		if !isTLS(cause) {
			cause = err
		}
		return &cubby.Error{
			Op: op, Code: cubby.CodeUnauthenticated, Err: fmt.Errorf("%w: %s: %w", ErrTLS, d.host, cause),
			Hint: "check DOCKER_TLS_VERIFY and DOCKER_CERT_PATH (ca.pem, cert.pem, key.pem) or Config.TLS",
		}
	case local:
		return &cubby.Error{Op: op, Code: cubby.CodeUnavailable, Err: fmt.Errorf("%w: %s: %w", ErrNoDaemon, d.host, cause), Hint: noDaemonHint()}
	}
	return &cubby.Error{
		Op: op, Code: cubby.CodeUnavailable, Err: fmt.Errorf("%w: %s: %w", ErrUnreachable, d.host, cause),
		Hint: "check Config.Host or DOCKER_HOST, that the daemon there listens on TCP, and what lies between",
	}
}

func isTLS(err error) bool {
	var (
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		alert     tls.AlertError
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	if errors.As(err, &verify) || errors.As(err, &record) || errors.As(err, &alert) || errors.As(err, &authority) ||
		errors.As(err, &hostname) || errors.As(err, &invalid) {
		return true
	}
	// The client does not keep every cause.
	text := err.Error()
	return strings.Contains(text, "tls: ") || strings.Contains(text, "x509: ") || strings.Contains(text, "TLS-enabled daemon") ||
		strings.Contains(text, plainToTLS) || strings.Contains(text, "HTTP response to HTTPS client")
}
