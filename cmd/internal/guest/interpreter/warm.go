//go:build linux

package interpreter

import "github.com/cubby-sandbox/cubby/cmd/internal/guest/settings"

// Warm starts the default kernels of languages that had none so far. One that
// ended is for the next call to replace, which says so.
func (ip *Interpreter) Warm(languages []string) {
	for _, name := range languages {
		language, kernelLanguage, err := normalise(name)
		if err != nil {
			continue
		}
		if language == settings.TypeScript {
			ip.startCompiler()
		}
		c := ip.byDefault(kernelLanguage)
		if !c.tryTake() {
			continue // somebody starts it, or uses it
		}
		if c.process() != nil || c.ended != "" {
			c.give()
			continue
		}
		ip.wg.Go(func() {
			defer c.give()
			// Whoever asks for this language first gets the error again.
			_, _, _ = ip.ensure(ip.ctx, c)
		})
	}
}
