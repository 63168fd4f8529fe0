//go:build !linux || !(amd64 || arm64)

package entry

// KeepClosed does nothing: how the process began is not known on this platform.
func KeepClosed() error { return nil }
