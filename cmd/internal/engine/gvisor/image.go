package gvisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cubby-sandbox/cubby/cmd/internal/engine"
)

// imageFile is beside gVisor's own files in the folder of a checkpoint. It is written
// last: a folder without it is no checkpoint.
const imageFile = "machine.json"

// image says what a checkpoint is of.
type image struct {
	Engine string       `json:"engine"`
	Commit string       `json:"commit"`
	Fixed  engine.Fixed `json:"fixed"`
}

func writeImage(dir string, fixed engine.Fixed) error {
	b, err := json.Marshal(image{Engine: Name, Commit: commit, Fixed: fixed})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, imageFile), b, 0o600)
}

// readImage returns what was fixed in the machine that was checkpointed. What this
// build did not make is engine.ErrForeign.
func readImage(dir string) (engine.Fixed, error) {
	b, err := os.ReadFile(filepath.Join(dir, imageFile))
	if errors.Is(err, fs.ErrNotExist) {
		return engine.Fixed{}, fmt.Errorf("%s holds no whole checkpoint: %w", dir, engine.ErrForeign)
	}
	if err != nil {
		return engine.Fixed{}, err
	}
	var i image
	if err := json.Unmarshal(b, &i); err != nil {
		return engine.Fixed{}, fmt.Errorf("%s: %w: %w", imageFile, engine.ErrForeign, err)
	}
	if i.Engine != Name || i.Commit != commit {
		return engine.Fixed{}, fmt.Errorf("%s: it is of %.40q %.80q, this is %s %s: %w", dir, i.Engine, i.Commit, Name, commit, engine.ErrForeign)
	}
	return i.Fixed, nil
}
