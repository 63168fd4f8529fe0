package dns

import (
	"testing"

	"github.com/miekg/dns"
	"golang.org/x/time/rate"

	"github.com/cubby-sandbox/cubby/cmd/internal/egress"
)

// BenchmarkAnswer is what a question costs that nobody else is asked about.
func BenchmarkAnswer(b *testing.B) {
	u := serve(b, zone(b, "real.example. 60 A 1.1.1.1"))
	rules := egress.Rules{Open: true, Deny: []string{"refused.example"}, Allow: []string{"pinned.example"}}
	rules.Deny = append(rules.Deny, "203.0.113.0/24")
	for _, name := range []string{"pinned.example.", "real.example.", "refused.example."} {
		b.Run(name, func(b *testing.B) {
			v := view(b, rules, u.addr)
			v.questions = rate.NewLimiter(rate.Inf, 0)
			message := packed(b, new(dns.Msg).SetQuestion(name, dns.TypeA))
			b.ReportAllocs()
			for b.Loop() {
				if v.Answer(b.Context(), message, packetSize) == nil {
					b.Fatal("there is no answer")
				}
			}
		})
	}
}
