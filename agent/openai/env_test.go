package openai_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cubby-sandbox/cubby/agent"
	"github.com/cubby-sandbox/cubby/agent/openai"
)

func TestFromEnv(t *testing.T) {
	asked := false
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer srv.Close()
	t.Setenv("OPENAI_API_KEY", " sk-1234\r\n")
	t.Setenv("OPENAI_BASE_URL", "\n"+srv.URL+" ")
	c := openai.FromEnv(openai.Config{Model: "m"})
	if c.APIKey != "sk-1234" || c.BaseURL != srv.URL {
		t.Errorf("%q %q", c.APIKey, c.BaseURL)
	}
	if c := openai.FromEnv(openai.Config{APIKey: "own\n", BaseURL: "http://own "}); c.APIKey != "own" || c.BaseURL != "http://own" {
		t.Errorf("%q %q", c.APIKey, c.BaseURL)
	}
	t.Setenv("OPENAI_API_KEY", "sk-1234\nsk-5678")
	_, err := openai.New(openai.FromEnv(openai.Config{Model: "m"})).Generate(t.Context(),
		agent.Request{Messages: []agent.Message{agent.UserText("a")}}, nil)
	var m *agent.ModelError
	if !errors.As(err, &m) || m.Kind != agent.KindUnauthorized || !strings.Contains(m.Hint, "OPENAI_API_KEY") || strings.Contains(err.Error(), "sk-") || asked {
		t.Errorf("%v; asked: %v", err, asked)
	}
}
