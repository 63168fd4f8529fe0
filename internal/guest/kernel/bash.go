package kernel

// BashMain is the Bash kernel.
func BashMain() int { return 0 }
