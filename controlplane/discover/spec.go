package discover

import (
	"fmt"
	"strings"

	"warmpath/controlplane/engine"
	"warmpath/controlplane/state"
)

// validate checks a spec and returns it in canonical form: state's rules, and
// that its engine is one that package engine speaks to.
func validate(s state.Spec) (state.Spec, error) {
	if !engine.Known(s.Engine) {
		return state.Spec{}, fmt.Errorf("node %q: engine %q is not known: use %s", s.Name, s.Engine, strings.Join(engine.Names(), ", "))
	}
	return s.Validate()
}
