// Command release gives all modules of the repository one version and writes a
// file-system module proxy of them, so that `go get` and `go install` can be tried
// with GOPROXY=file://FOLDER before anything is tagged.
//
// It edits the working tree: the version that Cubby tells, what the modules
// require of each other, go.work, and the sums of the modules in each other's
// go.sum. Those sums are of the tree as it is then, and so of a tag only if
// exactly that tree is committed and tagged.
//
//	release -version v0.3.0 -proxy FOLDER
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	proxy := flag.String("proxy", "", "`folder` to write the module proxy to")
	version := flag.String("version", "", "version of every module, such as v0.3.0")
	tree := flag.String("tree", ".", "`folder` of the repository")
	flag.Parse()
	if *proxy == "" || *version == "" || flag.NArg() != 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := raise(*tree, *version, *proxy); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}
