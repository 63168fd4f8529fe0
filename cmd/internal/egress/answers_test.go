package egress

import (
	"net/netip"
	"testing"
)

// An answer has no port: an address is passed if one of its ports may be reached.
func TestAnswers(t *testing.T) {
	p, err := Compile(Rules{Open: true}, Operator{Reach: []string{"10.1.0.0/16:443", "127.0.0.1:8080", "169.254.0.0/16", "100.100.100.200:80"}})
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]bool{
		"1.1.1.1":            true,
		"2606:4700::1111":    true,
		"10.1.2.3":           true,
		"10.2.0.1":           false,
		"127.0.0.1":          true,
		"127.0.0.2":          false,
		"192.168.1.1":        false,
		"169.254.3.4":        true,
		"169.254.169.254":    false, // the network that has it does not mean it
		"100.100.100.200":    true,
		"168.63.129.16":      false,
		"224.0.0.1":          false,
		"0.0.0.0":            false,
		"::1":                false,
		"::ffff:192.168.1.1": false,
		"::ffff:10.1.2.3":    true,
		"64:ff9b::10.2.0.1":  false,
		"fe80::1%eth0":       false,
		"2002:c0a8:0101::1":  false,
		"fd00:ec2::254":      false,
	} {
		if got := p.Answers(netip.MustParseAddr(addr)); got != want {
			t.Errorf("Answers(%s) = %v", addr, got)
		}
	}
}
