// Package attacks has what code in a sandbox may try against the network policy, as
// data: testdata/network-attacks.txtar. Its test runs each in a real sandbox, beside
// servers that stand for what is outside, and sees that nothing got there.
package attacks
