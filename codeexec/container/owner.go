package container

import (
	"context"

	"github.com/moby/moby/client"
)

// Labels of every container and image that this package makes.
const (
	labelExecutor = "cubby.executor"
	labelOwner    = "cubby.owner"
)

// sweep removes containers whose owners are gone. Containers end with the
// connection to their owner by themselves; what is swept are those that were
// never started, and those whose daemon was away at that moment. Its errors do
// not matter to who starts.
func (d *docker) sweep(ctx context.Context) (removed int) {
	found, err := d.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: client.Filters{}.Add("label", labelExecutor)})
	if err != nil {
		return 0
	}
	for _, c := range found.Items {
		if label := c.Labels[labelOwner]; label != "" && dead(label) {
			if _, err := d.api.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true}); err == nil {
				removed++
			}
		}
	}
	return removed
}
