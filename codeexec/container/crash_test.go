//go:build linux

package container

import (
	"context"
	"fmt"
	"os"
	"time"
)

// victimVar makes the test binary a program that is killed while it uses a
// container: its value is the daemon's host.
const victimVar = "CUBBY_TEST_VICTIM"

func victim() int {
	e, err := New(context.Background(), Config{Image: imagePython, Host: os.Getenv(victimVar), Pull: PullNever, StartTimeout: 3 * time.Minute})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(e.ContainerID())
	select {}
}
