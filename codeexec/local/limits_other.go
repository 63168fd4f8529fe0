//go:build !linux && !darwin

package local

func (limits) lower(memory, blocks, files int64) (int64, int64, int64) { return memory, blocks, files }
