package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// standardInput is what the code reads as its standard input; nil is an empty one.
func standardInput(src source, in io.Reader) io.Reader {
	f, ok := in.(*os.File)
	switch {
	case src.isInput || in == nil:
		return nil
	case !ok:
		return in
	case isNull(f):
		return nil
	case term.IsTerminal(int(f.Fd())):
		return keyboard{f}
	}
	return f
}
