// Package artifactctx carries the service of artifacts, and whose they are, through
// contexts, and loads and saves with what a context has.
package artifactctx

import (
	"context"
	"io/fs"

	"github.com/cubby-sandbox/cubby/codeexec/artifact"
	"github.com/cubby-sandbox/cubby/internal/execerr"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

type (
	serviceKey struct{}
	sessionKey struct{}
)

// WithService gives ctx a service.
func WithService(ctx context.Context, s artifact.Service) context.Context {
	return context.WithValue(ctx, serviceKey{}, s)
}

// WithSession says whose artifacts those of ctx's service are.
func WithSession(ctx context.Context, info artifact.SessionInfo) context.Context {
	return context.WithValue(ctx, sessionKey{}, info)
}

// Service returns what [WithService] gave.
func Service(ctx context.Context) (artifact.Service, bool) {
	s, ok := ctx.Value(serviceKey{}).(artifact.Service)
	return s, ok && s != nil
}

// session returns what [WithSession] gave, else the zero SessionInfo.
func session(ctx context.Context) artifact.SessionInfo {
	info, _ := ctx.Value(sessionKey{}).(artifact.SessionInfo)
	return info
}

// Load loads a version of an artifact, the newest if version is
// nil, from ctx's service. It returns the version that it loaded. It fails with
// [execerr.ErrNoArtifacts] when ctx has no service.
func Load(ctx context.Context, name string, version *int) (a *artifact.Artifact, loaded int, err error) {
	const op = "load artifact"
	s, ok := Service(ctx)
	if !ok {
		return nil, 0, execerr.Wrap(op, fault.InvalidArgument, execerr.ErrNoArtifacts)
	}
	info := session(ctx)
	if version == nil {
		versions, err := s.ListVersions(ctx, info, name)
		if err != nil {
			return nil, 0, execerr.Wrap(op, fault.Internal, err)
		}
		if len(versions) == 0 {
			return nil, 0, &fault.Error{Op: op, Code: fault.NotFound, Err: artifactError(name)}
		}
		version = new(versions[len(versions)-1])
	}
	a, err = s.Load(ctx, info, name, version)
	if err != nil {
		return nil, 0, execerr.Wrap(op, fault.Internal, err)
	}
	if a == nil {
		return nil, 0, &fault.Error{Op: op, Code: fault.NotFound, Err: artifactError(name)}
	}
	return a, *version, nil
}

type artifactError string

func (name artifactError) Error() string { return "no artifact " + string(name) }

// Is makes it a missing file's, whichever service says it.
func (name artifactError) Is(target error) bool { return target == fs.ErrNotExist }

// Save saves data as a new version of an artifact of ctx's
// service and returns the version.
func Save(ctx context.Context, name string, data []byte, mimeType string) (version int, err error) {
	const op = "save artifact"
	s, ok := Service(ctx)
	if !ok {
		return 0, execerr.Wrap(op, fault.InvalidArgument, execerr.ErrNoArtifacts)
	}
	version, err = s.Save(ctx, session(ctx), name, &artifact.Artifact{Data: data, MIMEType: mimeType, Name: name})
	return version, execerr.Wrap(op, fault.Internal, err)
}
