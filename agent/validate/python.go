package validate

import "context"

// python looks at Python.
func (v *Validator) python(ctx context.Context, src *source) (sightings, error) {
	return unchecked("python"), nil
}
