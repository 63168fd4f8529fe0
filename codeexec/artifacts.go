package codeexec

import (
	"context"
	"io/fs"

	"github.com/cubby-sandbox/cubby"
	"github.com/cubby-sandbox/cubby/codeexec/artifact"
)

type (
	serviceKey struct{}
	sessionKey struct{}
)

// WithArtifactService gives ctx the service that artifact:// inputs come from
// and that outputs are saved to.
func WithArtifactService(ctx context.Context, s artifact.Service) context.Context {
	return context.WithValue(ctx, serviceKey{}, s)
}

// WithArtifactSession says whose artifacts those are.
func WithArtifactSession(ctx context.Context, info artifact.SessionInfo) context.Context {
	return context.WithValue(ctx, sessionKey{}, info)
}

// ArtifactServiceFromContext returns what [WithArtifactService] gave.
func ArtifactServiceFromContext(ctx context.Context) (artifact.Service, bool) {
	s, ok := ctx.Value(serviceKey{}).(artifact.Service)
	return s, ok && s != nil
}

// ArtifactSessionFromContext returns what [WithArtifactSession] gave, else the
// zero SessionInfo.
func ArtifactSessionFromContext(ctx context.Context) artifact.SessionInfo {
	info, _ := ctx.Value(sessionKey{}).(artifact.SessionInfo)
	return info
}

// LoadArtifactHelper loads a version of an artifact, the newest if version is
// nil, from ctx's service. It returns the version that it loaded. It fails with
// [ErrNoArtifacts] when ctx has no service.
func LoadArtifactHelper(ctx context.Context, name string, version *int) (a *artifact.Artifact, loaded int, err error) {
	const op = "load artifact"
	s, ok := ArtifactServiceFromContext(ctx)
	if !ok {
		return nil, 0, Fail(op, cubby.CodeInvalidArgument, ErrNoArtifacts)
	}
	info := ArtifactSessionFromContext(ctx)
	if version == nil {
		versions, err := s.ListVersions(ctx, info, name)
		if err != nil {
			return nil, 0, Fail(op, cubby.CodeInternal, err)
		}
		if len(versions) == 0 {
			return nil, 0, &cubby.Error{Op: op, Code: cubby.CodeNotFound, Err: artifactError(name)}
		}
		version = new(versions[len(versions)-1])
	}
	a, err = s.Load(ctx, info, name, version)
	if err != nil {
		return nil, 0, Fail(op, cubby.CodeInternal, err)
	}
	if a == nil {
		return nil, 0, &cubby.Error{Op: op, Code: cubby.CodeNotFound, Err: artifactError(name)}
	}
	return a, *version, nil
}

type artifactError string

func (name artifactError) Error() string { return "no artifact " + string(name) }

// Is makes it a missing file's, whichever service says it.
func (name artifactError) Is(target error) bool { return target == fs.ErrNotExist }

// SaveArtifactHelper saves data as a new version of an artifact of ctx's
// service and returns the version.
func SaveArtifactHelper(ctx context.Context, name string, data []byte, mimeType string) (version int, err error) {
	const op = "save artifact"
	s, ok := ArtifactServiceFromContext(ctx)
	if !ok {
		return 0, Fail(op, cubby.CodeInvalidArgument, ErrNoArtifacts)
	}
	version, err = s.Save(ctx, ArtifactSessionFromContext(ctx), name, &artifact.Artifact{Data: data, MIMEType: mimeType, Name: name})
	return version, Fail(op, cubby.CodeInternal, err)
}

// ParseArtifactRef splits "name@3". See [artifact.ParseRef].
func ParseArtifactRef(ref string) (name string, version *int, err error) {
	return artifact.ParseRef(ref)
}
