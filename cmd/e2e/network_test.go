//go:build linux

package e2e

import "testing"

// TestSDKNetwork: the network options and secrets of E2B's packages.
func TestSDKNetwork(t *testing.T) {
	needNode(t)
	install(t, "new")
	w := newWorld(t)
	w.server.node(t, "new", "js/alone/network.test.mjs", "WORLD_API="+apiName, "WORLD_OTHER="+otherName)
}
