package main

import "os"

// isNull reports whether f is a device that is not a terminal: NUL, which also stands
// where standard input was closed.
func isNull(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && info.Mode()&os.ModeDevice != 0 && info.Name() == os.DevNull
}

// keyboard is a console's input.
type keyboard struct{ *os.File }
