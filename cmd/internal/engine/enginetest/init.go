package enginetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
	"github.com/cubby-sandbox/cubby/internal/protocol"
)

// dial connects to a port of the guest. Until that is told what sandbox it is it
// serves nothing, so it is told first.
func (m *machine) dial(ctx context.Context, port int) (net.Conn, error) {
	m.once.Do(func() { m.told = m.tell(ctx, protocol.InitRequest{}) })
	if m.told != nil {
		return nil, m.told
	}
	return m.Dial(ctx, port)
}

// tell is a host's call of /init, which may be repeated.
func (m *machine) tell(ctx context.Context, req protocol.InitRequest) error {
	const token = "the-suite's"
	req.HostToken = token
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://guest/init", bytes.NewReader(body))
	if err != nil {
		return err
	}
	post.Header.Set(protocol.HeaderHostToken, token)
	once := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return m.Dial(ctx, protocol.EnvdPort)
	}}
	resp, err := once.RoundTrip(post)
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("init: %s: %s", resp.Status, text)
	}
	return nil
}

// testInit has a machine become one sandbox after another while kernels run in it:
// they keep their state, and see the identity, the variables and the limits of the
// sandbox of the moment.
func (s Suite) testInit(t *testing.T) {
	m := s.start(t, engine.Limits{Memory: 512 << 20, PIDs: 200})
	// Each counts its calls, so that one that started anew would be found out.
	ask := map[string]string{
		"python": `
import os, resource
n = globals().get("n", 0) + 1
print(n, *[os.environ.get(k, "-") for k in ("E2B_SANDBOX_ID", "E2B_TEMPLATE_ID", "A", "B")], resource.getrlimit(resource.RLIMIT_NPROC)[0])`,
		"javascript": `
var n = (globalThis.n || 0) + 1
const { E2B_SANDBOX_ID, E2B_TEMPLATE_ID, A, B } = process.env
const limit = require('child_process').execSync('ulimit -u', { shell: 'bash' }).toString().trim()
console.log(n, ...[E2B_SANDBOX_ID, E2B_TEMPLATE_ID, A, B].map((v) => v || '-'), limit)`,
		"bash": `n=$((n + 1)); bash -c 'echo $0 ${E2B_SANDBOX_ID:--} ${E2B_TEMPLATE_ID:--} ${A:--} ${B:--} $(ulimit -u)' $n`,
	}
	const fork = `
import os, signal
kids = []
try:
    while len(kids) < 150:
        pid = os.fork()
        if pid == 0: signal.pause()
        kids.append(pid)
except BlockingIOError: pass
for pid in kids: os.kill(pid, 9); os.waitpid(pid, 0)
print(len(kids))`
	lower := protocol.InitRequest{SandboxID: "i2", TemplateID: "mine", EnvVars: map[string]string{"B": "2"}, Limits: protocol.Limits{MemoryMB: 384, PIDs: 60}}
	for i, step := range []struct {
		told         protocol.InitRequest
		want         string
		least, most  int // processes that the code can start besides those of the kernels
		memory, cpus int64
	}{
		{protocol.InitRequest{SandboxID: "i1", TemplateID: "base", EnvVars: map[string]string{"A": "1"},
			Limits: protocol.Limits{MemoryMB: 300, CPUs: 1, PIDs: 100},
			Warm:   []string{"python", "javascript", "bash"}}, "i1 base 1 - 100", 60, 99, 300, 1},
		{lower, "i2 mine - 2 60", 1, 59, 384, 1},
		{lower, "i2 mine - 2 60", 1, 59, 384, 1},
		{protocol.InitRequest{EnvVars: map[string]string{}, Limits: protocol.Limits{PIDs: 50, CPUs: 2}}, "i2 mine - - 50", 1, 49, 384, 2},
	} {
		m.become(t, step.told)
		for language, code := range ask {
			if got, want := m.must(t, language, code), fmt.Sprint(i+1, " ", step.want); got != want {
				t.Errorf("step %d: %s says %q, want %q", i, language, got, want)
			}
		}
		kids, err := strconv.Atoi(m.must(t, "", fork))
		if err != nil || kids < step.least || kids > step.most {
			t.Errorf("step %d: the code can start %d processes (%v), want %d to %d", i, kids, err, step.least, step.most)
		}
		if memory, cpus := m.metrics(t); memory != step.memory || cpus != step.cpus {
			t.Errorf("step %d: it has %d MiB and %d processors, as it says", i, memory, cpus)
		}
	}
	// All that runs is bound by a lower limit, whoever started it; what has less by
	// its own wish keeps that. What is started next gets a higher one.
	m.must(t, "bash", `sleep 1000 & running=$!; (ulimit -u 30; exec sleep 1000) & modest=$!
sudo sleep 1001 & until other=$(pgrep -u root -xf 'sleep 1001'); do sleep .05; done`)
	m.become(t, protocol.InitRequest{Limits: protocol.Limits{PIDs: 45}})
	got := m.must(t, "bash", `ask="prlimit --nproc --output SOFT,HARD --noheadings --raw --pid"; $ask $running; $ask $modest; sudo $ask $other`)
	if want := "45 45\n30 30\n45 45"; got != want {
		t.Errorf("limits of processes that ran: %q, want %q", got, want)
	}
	m.become(t, protocol.InitRequest{Limits: protocol.Limits{PIDs: 100}})
	m.run(t, "", "import os; os._exit(0)")
	if got := m.must(t, "", "import resource; print(*resource.getrlimit(resource.RLIMIT_NPROC))"); got != "100 100" {
		t.Errorf("the limit of a new kernel is %s", got)
	}
	if kids, err := strconv.Atoi(m.must(t, "", fork)); err != nil || kids < 50 || kids > 99 {
		t.Errorf("a new kernel can start %d processes (%v)", kids, err)
	}
}

// become is tell in a test.
func (m *machine) become(t *testing.T, req protocol.InitRequest) {
	t.Helper()
	if err := m.tell(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// metrics are what the machine says of its memory, in MiB, and its processors.
func (m *machine) metrics(t *testing.T) (memory, cpus int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://guest/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := m.transport[protocol.EnvdPort].RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct {
		Memory int64 `json:"mem_total_mib"`
		CPUs   int64 `json:"cpu_count"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	return got.Memory, got.CPUs
}
