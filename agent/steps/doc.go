// Package steps has the steps of working with code that a model writes, each to
// be used alone: generate, extract, validate, execute, explain, fix, repair,
// test, transform. [agent.Agent] is the loop for questions that need more.
//
//	code, err := steps.GenerateCode(ctx, model, steps.Task{Text: "Add two numbers: add(a, b)"})
//	…
//	report, err := steps.TestCode(ctx, executor, code, []steps.Case{{Call: "add(2, 3)", Expected: 5}})
//
// Code runs in the [codeexec.CodeExecutor] and nowhere else. Each run has a state
// of its own unless the executor comes from [InSession]. What models write and
// code prints is hostile: prompts carry it fenced as data, and it is bounded.
//
// A model is asked at its own temperature; [agent.AtTemperature] sets another one,
// for code usually a low one.
//
// Functions are safe for concurrent use as far as their model and executor are,
// which stay the caller's. Errors mean that a step could not be done: the model
// gave no code, the executor is gone. Code that fails is no error; results say so.
package steps
