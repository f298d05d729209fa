package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// errUsage marks errors of the command line.
var errUsage = errors.New("wrong usage")

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is main without the process: it returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	began := false // a command's own code ran, so that an error is not one of usage
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		// Cobra looks for required flags only after this.
		err := cmd.ValidateRequiredFlags()
		began = err == nil
		return err
	}
	err := root.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "warmpath:", err)
	if !began || errors.Is(err, errUsage) {
		return exitUsage
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "warmpath",
		Short: "A router for fleets of LLM inference engines that knows where each prompt's prefix is cached",
		Example: `  warmpath demo                         simulated fleet and router, nothing to set up
  warmpath check --config warmpath.yaml  all that is wrong with a configuration
  warmpath serve --config warmpath.yaml  the router`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddGroup(&cobra.Group{ID: "run", Title: "Run:"}, &cobra.Group{ID: "read", Title: "Read from a running router:"},
		&cobra.Group{ID: "change", Title: "Change a running router:"})
	root.AddCommand(newServe(), newCheck(), newDoctor(), newDemo(), newScale(), newStatus(), newScaler(), newNodes(), newExplain(), newTokens(), newDrain(true), newDrain(false), newReload(), newGuard(), newUnguard(), newAgent(), newVersion())
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", GroupID: "run", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(c.OutOrStdout(), "warmpath %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
