package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"warmpath/bench/proxy"
)

// version is set by the linker.
var version = "dev"

func main() {
	os.Exit(run())
}

// run returns the exit code: 0 ok, 1 failed, 2 wrong usage.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	usage := true // until a command's own code runs
	root := &cobra.Command{
		Use:               "warmbench",
		Short:             "Measure warmpath and its peers",
		Version:           version,
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRun:  func(*cobra.Command, []string) { usage = false },
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.AddCommand(newBackendCommand(), newProxyCommand(), newIndexCommand(), newTokensCommand(), newStormCommand(), newLoadCommand(), newSoakCommand(), newScaleCommand(), newFleetCommand(), newNodesCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "warmbench:", err)
		var options *proxy.OptionsError
		if usage || errors.As(err, &options) {
			return 2
		}
		return 1
	}
	return 0
}
