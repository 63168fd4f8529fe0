// Package agent answers questions by having a language model write code, running
// that code in a sandbox and showing the model what came of it, until it answers.
//
//	model := openai.New(openai.Config{Model: "gpt-5"}) // or anthropic, or your own
//	executor, err := sandbox.New(ctx, sandbox.Config{})
//	…
//	a, err := agent.New(model, executor)
//	…
//	s := a.Session("") // keeps variables and files from question to question
//	defer s.Close()
//	answer, err := s.Ask(ctx, agent.Question{Text: "Which year was the wettest?", Files: files}, nil)
//
// A model is anything that implements [Model]: agent/openai and agent/anthropic
// are two. Code runs in any [codeexec.CodeExecutor]. The wall around it is the
// executor's; what agent/validate says about code beforehand is advice.
//
// What a model writes and what its code prints are hostile here: code runs in the
// executor only, what it prints goes back fenced as data, and the bounds of
// [Limits] end what would not end by itself.
package agent
