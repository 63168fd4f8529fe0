package transform

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cubby-sandbox/cubby/cmd/internal/typescript"
)

// Main answers the sources on standard input until it ends. It returns the exit status.
func Main() int {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, typescript.Program+":", err)
		return 1
	}
	return 0
}

func serve(r io.Reader, w io.Writer) error {
	in := bufio.NewReader(r)
	for {
		source, err := typescript.Read(in, typescript.MaxSource)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a source: %w", err)
		}
		answer, err := typescript.Answer(StripTypes(string(source)))
		if err == nil && len(answer) > typescript.MaxAnswer {
			answer, err = typescript.Answer("", &typescript.SyntaxError{
				Text: fmt.Sprintf("the source becomes more than %d MiB of JavaScript", typescript.MaxAnswer>>20),
			})
		}
		if err == nil {
			err = typescript.Write(w, answer, typescript.MaxAnswer)
		}
		if err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}
