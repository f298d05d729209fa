package main

import (
	"encoding/json"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"warmpath/controlplane/config"
	"warmpath/controlplane/doctor"
)

func newDoctor() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor [--config FILE]", Short: "Say what this host, its kernel and the fleet allow, with remedies", GroupID: "run", Args: cobra.NoArgs,
		Long: `Say what this host and its kernel allow a router that is started the way this command is: by the
same user, with the same capabilities and limits. The kernel's programs are loaded for a moment and
taken off again; a router that runs here is not disturbed.

With --config also whether the configuration is valid, its files can be read and each node answers
its health route. What is marked note could be better and is not needed; ends with 1 if something
that is needed fails.`,
		Example: `  warmpath doctor
  warmpath doctor --config warmpath.yaml --output json`,
	}
	flags := addOverrides(cmd)
	output := cmd.Flags().String("output", "text", "text or json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *output != "text" && *output != "json" {
			return fmt.Errorf("%w: --output %q: use text or json", errUsage, *output)
		}
		var load func() (*config.Config, error)
		if flags.path != "" {
			load = flags.load
		} else if key := flags.overridden(); key != "" {
			return fmt.Errorf("%w: --%s overrides a key of a configuration, and there is none; add --config", errUsage, key)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		report, err := doctor.Examine(ctx, load)
		if err != nil {
			return err
		}
		if *output == "json" {
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			e.SetEscapeHTML(false)
			err = e.Encode(report)
		} else {
			err = report.Print(cmd.OutOrStdout())
		}
		if err != nil {
			return err
		}
		return report.Err()
	}
	return cmd
}
