package codeexec

import (
	"context"

	"github.com/cubby-sandbox/cubby/codeexec/artifact"
	"github.com/cubby-sandbox/cubby/codeexec/internal/artifactctx"
)

// WithArtifactService gives ctx the service that artifact:// inputs of workspaces
// come from and that their outputs are saved to.
func WithArtifactService(ctx context.Context, s artifact.Service) context.Context {
	return artifactctx.WithService(ctx, s)
}

// WithArtifactSession says whose artifacts those are.
func WithArtifactSession(ctx context.Context, info artifact.SessionInfo) context.Context {
	return artifactctx.WithSession(ctx, info)
}
