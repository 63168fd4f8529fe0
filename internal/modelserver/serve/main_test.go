package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestServesUntilStandardInputEnds(t *testing.T) {
	stdin, end := io.Pipe()
	out, stdout := io.Pipe()
	done := make(chan error)
	go func() { done <- run(t.Context(), []string{"-script", "hello"}, stdin, stdout, io.Discard) }()
	urls := map[string]string{}
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != ""; {
		name, url, _ := strings.Cut(lines.Text(), "=")
		urls[name] = url
	}
	for _, url := range []string{urls["OPENAI_BASE_URL"] + "/models", urls["ANTHROPIC_BASE_URL"] + "/v1/models"} {
		response, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", url, response.Status)
		}
	}
	end.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	stdin, end := io.Pipe()
	defer end.Close()
	if err := run(ctx, nil, stdin, io.Discard, io.Discard); err != nil {
		t.Error(err)
	}
}

func TestUnknownScript(t *testing.T) {
	err := run(t.Context(), []string{"-script", "nosuch"}, strings.NewReader(""), io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "demo, hello") {
		t.Errorf("got %v", err)
	}
}
