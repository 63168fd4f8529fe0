//go:build linux

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// answer is a response that was read to its end.
type answer struct {
	Status int
	Header http.Header
	Body   []byte
}

func (a answer) String() string {
	return fmt.Sprintf("%d %.2000s", a.Status, a.Body)
}

// decode fails the test unless the answer has the status and is JSON for v.
func (a answer) decode(t *testing.T, status int, v any) {
	t.Helper()
	if a.Status != status {
		t.Fatalf("want status %d, got %v", status, a)
	}
	if err := json.Unmarshal(a.Body, v); err != nil {
		t.Fatalf("%v: %v", err, a)
	}
}

// call sends one request. Header pairs follow the body.
func call(t *testing.T, client *http.Client, method, url string, body any, header ...string) answer {
	t.Helper()
	a, err := try(t.Context(), client, method, url, body, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return a
}

// try does the same and returns what went wrong. A body that is no string and no
// reader is sent as JSON.
func try(ctx context.Context, client *http.Client, method, url string, body any, header ...string) (answer, error) {
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	case io.Reader:
		r = b
	default:
		text, err := json.Marshal(b)
		if err != nil {
			return answer{}, err
		}
		r = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, r)
	if err != nil {
		return answer{}, err
	}
	if r != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, text}, err
}

// box is what a create answers.
type box struct {
	ID       string `json:"sandboxID"`
	ClientID string `json:"clientID"`
	Template string `json:"templateID"`
	Token    string `json:"envdAccessToken"`
	Traffic  string `json:"trafficAccessToken"`
	Domain   string `json:"domain"`
}

// create makes a sandbox as the newest clients do, and kills it at the end.
func (s *server) create(t *testing.T, key string) box {
	t.Helper()
	var b box
	call(t, http.DefaultClient, "POST", s.URL+"/v2/sandboxes", map[string]any{"templateID": "base", "timeout": 600}, "X-API-KEY", key).decode(t, http.StatusCreated, &b)
	t.Cleanup(func() {
		// It may have been killed by the test; the context of the test is over.
		try(context.Background(), http.DefaultClient, "DELETE", s.URL+"/sandboxes/"+b.ID, nil, "X-API-KEY", key)
	})
	return b
}

// Ports of a sandbox's own services.
const (
	portEnvd = "49983"
	portCode = "49999"
)

// routed are the headers that lead to a port of a sandbox, and its token.
func (b box) routed(port string) []string {
	return []string{"E2b-Sandbox-Id", b.ID, "E2b-Sandbox-Port", port, "X-Access-Token", b.Token}
}

// envelope frames a message of a Connect stream.
func envelope(flags byte, message any) []byte {
	text, err := json.Marshal(message)
	if err != nil {
		panic(err) // of this file's own making
	}
	frame := binary.BigEndian.AppendUint32([]byte{flags}, uint32(len(text)))
	return append(frame, text...)
}

// command is one for a sandbox's envd, as both SDKs send theirs.
type command struct {
	Text    string
	User    string // empty leaves it to envd
	Envs    map[string]string
	Cwd     string
	Timeout string // in milliseconds; empty sends none
}

// outcome of a command.
type outcome struct {
	Stdout, Stderr string
	Exit           int
	Error          string // of its end
}

// rpcError is the error that ended a Connect stream.
type rpcError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return e.Code + ": " + e.Message }

// run starts a command and reads its stream to the end. url is envd's; header
// pairs route and authenticate.
func run(ctx context.Context, client *http.Client, url string, c command, header ...string) (outcome, error) {
	process := map[string]any{"cmd": "/bin/bash", "args": []string{"-l", "-c", c.Text}}
	if c.Envs != nil {
		process["envs"] = c.Envs
	}
	if c.Cwd != "" {
		process["cwd"] = c.Cwd
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/process.Process/Start", bytes.NewReader(envelope(0, map[string]any{"process": process, "stdin": false})))
	if err != nil {
		return outcome{}, err
	}
	req.Header.Set("Content-Type", "application/connect+json")
	req.Header.Set("Connect-Protocol-Version", "1")
	req.Header.Set("Keepalive-Ping-Interval", "50")
	if c.Timeout != "" {
		req.Header.Set("Connect-Timeout-Ms", c.Timeout)
	}
	if c.User != "" {
		req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.User+":")))
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := client.Do(req)
	if err != nil {
		return outcome{}, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		return outcome{}, fmt.Errorf("status %d: %.500s", res.StatusCode, text)
	}
	return readProcess(bufio.NewReader(res.Body))
}

// readProcess reads a stream of process events until its end.
func readProcess(r *bufio.Reader) (outcome, error) {
	var out outcome
	var stdout, stderr []byte
	started, ended := false, false
	for {
		var head [5]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return out, fmt.Errorf("the stream broke: %w", err)
		}
		text := make([]byte, binary.BigEndian.Uint32(head[1:]))
		if _, err := io.ReadFull(r, text); err != nil {
			return out, fmt.Errorf("the stream broke: %w", err)
		}
		if head[0]&2 != 0 {
			var last struct {
				Error *rpcError `json:"error"`
			}
			out.Stdout, out.Stderr = string(stdout), string(stderr)
			switch err := json.Unmarshal(text, &last); {
			case err != nil:
				return out, err
			case last.Error != nil:
				return out, last.Error
			case !ended:
				return out, errors.New("the stream ended without an end event")
			}
			return out, nil
		}
		var message struct {
			Event struct {
				Start *struct{ PID int }
				Data  *struct{ Stdout, Stderr []byte }
				End   *struct {
					ExitCode int
					Exited   bool
					Status   string
					Error    string
				}
			}
		}
		if err := json.Unmarshal(text, &message); err != nil {
			return out, fmt.Errorf("%w: %.200s", err, text)
		}
		switch e := message.Event; {
		case e.Start != nil:
			if started || e.Start.PID == 0 {
				return out, fmt.Errorf("unexpected start: %s", text)
			}
			started = true
		case !started || ended:
			return out, fmt.Errorf("event out of order: %.200s", text)
		case e.Data != nil:
			stdout, stderr = append(stdout, e.Data.Stdout...), append(stderr, e.Data.Stderr...)
		case e.End != nil:
			ended, out.Exit, out.Error = true, e.End.ExitCode, e.End.Error
		}
	}
}
