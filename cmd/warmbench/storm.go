package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"warmpath/bench/stormbench"
)

func newStormCommand() *cobra.Command {
	o := stormbench.Options{Commit: version}
	cmd := &cobra.Command{
		Use:   "storm",
		Short: "Measure routing while all nodes restart and report all they hold, again and again",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Node == "" {
				var stop func()
				if o.Node, stop, err = startNode(cmd.Context()); err != nil {
					return err
				}
				defer stop()
			}
			return stormbench.Measure(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Node, "node", "", "host:port where all nodes answer; default: a process of this program")
	f.IntVar(&o.Nodes, "nodes", 100, "nodes of the fleet")
	f.IntVar(&o.Loops, "loops", 1, "event loops of the data plane")
	f.IntVar(&o.Rate, "rate", 1000, "requests a second")
	f.IntVar(&o.PromptBytes, "size", 4096, "bytes of a prompt")
	f.IntVar(&o.Conversations, "conversations", 200, "what a node reports before it starts anew, in captures played")
	f.Int64Var(&o.IndexBytes, "index-bytes", 256<<20, "bound of the index's memory")
	f.IntVar(&o.Runs, "runs", 9, "pairs of a run at rest and one in the storm")
	f.DurationVar(&o.Duration, "duration", 3*time.Second, "of a run")
	f.Float64Var(&o.Steal, "steal", 1, "percent of processor time; a pair from which the machine's host took more is done again")
	f.StringVar(&o.Captures, "captures", "", "pattern of the captures' names; default: those of the repository")
	return cmd
}

// startNode runs this program as a node and returns its address.
func startNode(ctx context.Context) (address string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("find own executable: %w", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = ln.Addr().String()
	_ = ln.Close()
	node := exec.CommandContext(ctx, self, "backend", "--listen", address, "--model", "m")
	node.Stderr = os.Stderr
	node.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := node.Start(); err != nil {
		return "", nil, fmt.Errorf("start a node: %w", err)
	}
	stop = func() {
		_ = node.Process.Signal(syscall.SIGTERM)
		_ = node.Wait()
	}
	for range 500 {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return address, stop, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	return "", nil, fmt.Errorf("the node at %s does not listen", address)
}
