package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"warmpath/controlplane"
	"warmpath/controlplane/config"
	"warmpath/controlplane/kernel"
)

// discard is for parts that log what the report says anyway.
var discard = slog.New(slog.DiscardHandler)

// Examine looks at this host, and at what a configuration asks of it and of the
// fleet; load is nil where there is none. A configuration that cannot be loaded is
// part of the report; the error is for a host that cannot be looked at.
func Examine(ctx context.Context, load func() (*config.Config, error)) (*Report, error) {
	h, err := look(os.DirFS("/"))
	if err != nil {
		return nil, fmt.Errorf("look at this host: %w", err)
	}
	r := &Report{Kernel: Kernel{Tier: h.Tier, Reasons: h.Reasons}}
	if r.Kernel.Reasons == nil {
		r.Kernel.Reasons = []kernel.Reason{}
	}
	c, refused := config.Default(), error(nil)
	if load != nil {
		var given *config.Config
		if given, refused = load(); refused == nil {
			c = given
		}
	}
	h.Budget, h.Memory = controlplane.Memory(c)
	r.Checks = judge(&h, c)
	switch {
	case load == nil:
	case refused != nil:
		r.Checks = append(r.Checks, configuration(refused)...)
	default:
		r.Checks = append(r.Checks, needed(good("configuration", "%d models, %d nodes, policy %s", len(c.Models), len(c.Nodes), c.Policy.Name)))
		r.Checks = append(r.Checks, files(controlplane.CheckFiles(c))...)
		r.Checks = append(r.Checks, nodes(c, askNodes(ctx, c))...)
	}
	return r, nil
}
