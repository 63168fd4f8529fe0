package child

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/cmd/internal/images"
	"github.com/cubby-sandbox/cubby/internal/fault"
)

// TestNoRoom: who asks for an image for which there is no room is told so, and not where
// this machine keeps them.
func TestNoRoom(t *testing.T) {
	for _, c := range []struct {
		room images.RoomError
		want string
	}{
		{images.RoomError{Where: "/srv/images", Need: 79<<20 + 1, Free: 65 << 20}, "there is no room for an image of 80 MiB, 65 MiB are left"},
		{images.RoomError{Where: "/srv/images", Free: 65 << 20}, "there is no room for an image"},
	} {
		err := imageError(fmt.Errorf("image i1: %w", &c.room))
		e := fault.In(err)
		if e == nil || e.Code != fault.NoSpace || e.Err.Error() != c.want || e.Hint == "" || strings.Contains(err.Error(), "/srv") {
			t.Errorf("%+v: %v", c.room, err)
		}
	}
}
