//go:build linux

package container

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/cubby-sandbox/cubby/codeexec"
)

// victimVar makes the test binary a program that is killed while it uses a
// container: its value is the daemon's host.
const victimVar = "CUBBY_TEST_VICTIM"

func victim() int {
	ctx := context.Background()
	e, err := New(ctx, Config{Image: imagePython, Host: os.Getenv(victimVar), Pull: PullNever,
		StartTimeout: 3 * time.Minute, Timeout: time.Hour})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	if _, err := e.ExecuteCode(ctx, codeexec.CodeExecutionInput{Code: "1"}); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(e.ContainerID(""))
	_, err = e.ExecuteCode(ctx, codeexec.CodeExecutionInput{Code: "import time, os\nos.setsid() if os.fork() == 0 else 0\ntime.sleep(3600)"})
	fmt.Println(err)
	return 1
}

// TestKilled: a program that is killed leaves no container, whatever ran in it.
func TestKilled(t *testing.T) {
	needDocker(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victimVar+"="+daemon.Host)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	id, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	id = strings.TrimSpace(id)
	time.Sleep(time.Second) // let the code begin: not needed, only more to end
	if _, err := dockerClient(t).ContainerInspect(t.Context(), id, client.ContainerInspectOptions{}); err != nil {
		t.Fatalf("the container %q: %v", id, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err := dockerClient(t).ContainerInspect(t.Context(), id, client.ContainerInspectOptions{}); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the container lives on")
		}
	}
}

// TestSweep: a start removes containers of owners that are gone, and none of
// those that live, of other machines, or of strangers.
func TestSweep(t *testing.T) {
	api := dockerClient(t)
	me := strings.Split(owner(), "/")
	with := func(i int, value string) string {
		parts := append([]string(nil), me...)
		parts[i] = value
		return strings.Join(parts, "/")
	}
	kept, swept := map[string]string{}, map[string]string{}
	for what, label := range map[string]string{
		"ours": owner(), "another boot": with(0, "0000"), "another namespace": with(1, "net:[1]"), "nonsense": "x", "no owner": "",
		"a name that is none": with(2, "x"), "a name that is too long": with(2, "cubby-owner-"+strings.Repeat("x", 200)),
		"of an earlier version": me[0] + "/pid:[4026531836]/1/1", "-gone": with(2, "cubby-owner-gone"),
	} {
		made, err := api.ContainerCreate(t.Context(), client.ContainerCreateOptions{
			Config: &container.Config{Image: imagePython, Cmd: []string{"true"}, Labels: map[string]string{labelExecutor: "true", labelOwner: label}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, _ = api.ContainerRemove(context.Background(), made.ID, client.ContainerRemoveOptions{Force: true}) // it may be gone
		})
		if what[0] == '-' {
			swept[what] = made.ID
		} else {
			kept[what] = made.ID
		}
	}
	open(t, Config{})
	there := func(id string) bool {
		_, err := api.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
		return err == nil
	}
	for what, id := range kept {
		if !there(id) {
			t.Errorf("%s: removed", what)
		}
	}
	for what, id := range swept {
		if there(id) {
			t.Errorf("%s: still there", what)
		}
	}
}

// TestTimeNamespaces: a living owner is recognised from another time namespace,
// where its process has another start time, and the other way round.
func TestTimeNamespaces(t *testing.T) {
	needDocker(t)
	if out, err := exec.Command("unshare", "--time", "--boottime", "100000", "true").CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: no time namespace here: %v: %s", err, out)
	}
	e := open(t, Config{})
	mustRun(t, e, python("open('kept', 'w')"))
	cmd := exec.CommandContext(t.Context(), "unshare", "--time", "--boottime", "100000", os.Args[0])
	cmd.Env = append(os.Environ(), victimVar+"="+daemon.Host)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it runs still
		_ = cmd.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	open(t, Config{})
	there := strings.TrimSpace(line)
	if _, err := dockerClient(t).ContainerInspect(t.Context(), there, client.ContainerInspectOptions{}); err != nil {
		t.Errorf("the container of the other namespace: %v", err)
	}
	if r := mustRun(t, e, python("import os\nprint(os.path.exists('kept'))")); r.Output != "True\n" || r.StateLost {
		t.Errorf("the container of this namespace: got %+v", r)
	}
}
