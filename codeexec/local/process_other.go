//go:build !linux && !darwin

package local

import "errors"

const supported = false

type process struct{}

func start(program) (*process, error) { return nil, errors.ErrUnsupported }

func (*process) Write([]byte) (int, error) { return 0, errors.ErrUnsupported }
func (*process) Terminate() error          { return errors.ErrUnsupported }
func (*process) Kill() error               { return errors.ErrUnsupported }
func (*process) Wait() (int, error)        { return -1, errors.ErrUnsupported }
func (*process) wait() (int, int, error)   { return -1, 0, errors.ErrUnsupported }
func (*process) kill()                     {}
