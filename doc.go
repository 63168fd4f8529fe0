// Package cubby runs code in sandboxes and hands back what it printed, showed
// and wrote.
//
// A [Client] speaks E2B's protocol, so the same program drives a private Cubby
// (package embedded), a Cubby server, or any other server of that protocol:
//
//	c, err := cubby.NewClient(cubby.Config{APIURL: "http://127.0.0.1:8080"})
//	if err != nil {
//		return err
//	}
//	sbx, err := c.Create(ctx)
//	if err != nil {
//		return err
//	}
//	defer sbx.Close()
//	ex, err := sbx.RunCode(ctx, "print(6*7)")
//	if err != nil {
//		return err
//	}
//	fmt.Print(ex.Stdout)
//
// An error of the code that ran is not an error of RunCode: it is in
// [Execution.Error]. A sandbox also runs commands, which are processes of their
// own ([Sandbox.Commands]), has files that are read, written, copied and watched
// ([Sandbox.Files]), and ports that are reached over HTTP ([Sandbox.Transport],
// [Sandbox.Host]) or as they are ([Sandbox.Dial]):
//
//	res, err := sbx.Commands().Run(ctx, "make test", cubby.WithCwd("/src"), cubby.WithUser("root"))
//	if err != nil {
//		return err // not of the command: its status is in res
//	}
//	fmt.Println(res.ExitCode, res.Stdout)
//
// Its network is closed, unless it is created with a [Network] that says what code may
// connect to; [Sandbox.SetNetwork] changes that while it runs:
//
//	sbx, err := c.Create(ctx, cubby.WithNetwork(cubby.Network{Allow: []string{"@pypi", "api.example.com:443"}}))
//
// It lives until its timeout ([WithTimeout], [Sandbox.SetTimeout]) or its end
// ([Sandbox.Kill]), also when its program does not: [Client.List] and
// [Client.Connect] find it again. A private Cubby's ends with the program.
//
// [Sandbox.Pause] writes its memory and files to the server's disk, and then it takes
// neither memory nor processor; Connect resumes it, and what ran goes on. A server does
// both by itself for one that was created with [WithAutoPause] and [WithAutoResume].
// [Sandbox.Snapshot] keeps what it is at a moment: other sandboxes are made of that
// ([WithTemplate]), or it is put back to it ([Sandbox.Rollback]). [Sandbox.Fork] copies
// it with what runs in it:
//
//	copies, err := sbx.Fork(ctx, 3)
//	for _, c := range copies { // also where fewer could be made
//		defer c.Close()
//	}
//	if err != nil {
//		return err
//	}
//
// Every error of this package is an [*Error] whose [Code] says what kind it is:
// [CodeSandboxGone] for a sandbox that has ended, [CodePaused] for one that is
// paused, [CodeUnimplemented] for what this server cannot do. Nothing is tried
// again by itself, except that a server that does not know the newest form of a
// call is asked in the one before it.
//
// What a sandbox answers is treated as hostile: lines, frames, results, output,
// listings and error messages are all bounded. What a caller asks to have
// unbounded ([Files.Open], [StdoutTo], [Sandbox.Transport]) says so.
package cubby
