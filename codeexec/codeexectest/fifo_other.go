//go:build !unix

package codeexectest

import "errors"

func mkfifo(string) error { return errors.ErrUnsupported }
