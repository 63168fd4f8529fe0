package enginebin

// isChild is handshake.IsChild. That package's imports would be initialised before this
// one: errors of the client and, with them, net/http.
func isChild(args []string) bool {
	return len(args) >= 2 && args[0] == "serve" && args[1] == "--private"
}
