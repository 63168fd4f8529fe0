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
// [Execution.Error]. Every error of this package is an [*Error] whose [Code]
// says what kind it is.
//
// What a sandbox answers is treated as hostile: lines, results, listings and
// error messages are all bounded.
package cubby
