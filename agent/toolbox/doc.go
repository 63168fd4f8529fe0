// Package toolbox keeps code that worked under a name, with a schema of its
// arguments, so that a model and the program around it can call it later, in
// another session and another process.
//
//	box, err := toolbox.Open(dir) // or toolbox.Memory()
//	…
//	a, err := agent.New(model, executor, agent.WithToolbox(box))
//
// The model then has the tool keep_tool, and every tool that was kept. A program
// calls one with [Box.Call].
//
// Kept code runs where other code of a model runs: in an executor. It is checked
// when it is called, by whoever calls it: the agent asks its validator and its
// approver as for any code. A tool's name and description are a model's words
// which other sessions read: share a folder only between people who trust each
// other's data. The hash in a file tells that it was damaged or edited; somebody
// who means harm can write another one.
package toolbox
