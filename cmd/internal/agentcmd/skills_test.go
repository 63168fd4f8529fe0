package agentcmd

import (
	"testing"

	"github.com/cubby-sandbox/cubby/codeexec/skill"
)

// TestSkillCode: no form of arguments that runs a command comes past a policy or a person.
func TestSkillCode(t *testing.T) {
	for _, test := range []struct {
		tool, arguments, code string
		runs                  bool
	}{
		{"skill_run", `{"skill":"s","command":"ls"}`, "ls", true},
		{"skill_exec", `{"skill":"s","Command":"ls"}`, "ls", true},
		{"skill_run", `"{\"skill\":\"s\",\"command\":\"ls\"}"`, "ls", true},
		{"skill_run", `{"command":"ls","chars":5}`, `{"command":"ls","chars":5}`, true},
		{"skill_run", `{`, `{`, true},
		{"skill_write_stdin", `{"chars":"yes"}`, "yes", true},
		{"skill_write_stdin", `{"chars":"yes","command":5}`, `{"chars":"yes","command":5}`, true},
		{"skill_write_stdin", `{"submit":true}`, "", false},
		{"skill_load", `{"skill":"s"}`, "", false},
	} {
		block, runs := skillTool{skill.Definition{Name: test.tool}}.Code([]byte(test.arguments))
		if block.Code != test.code || runs != test.runs {
			t.Errorf("%s %s: %q, %v", test.tool, test.arguments, block.Code, runs)
		}
	}
}
