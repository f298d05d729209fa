package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"warmpath/bench/fleetbench"
)

// metricsBytes is what vLLM 0.32 answers when it has served a few requests.
const metricsBytes = 61_000

func newFleetCommand() *cobra.Command {
	o := fleetbench.Options{Commit: version}
	n := fleetbench.NodesOptions{MetricsBytes: metricsBytes}
	cmd := &cobra.Command{
		Use:   "fleet",
		Short: "Measure what a thousand nodes cost the router: its control plane, its snapshots, the time of a decision",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n.Nodes, o.MetricsBytes, o.Whole = o.Nodes, n.MetricsBytes, n.Whole
			port, stop, err := startNodes(cmd.Context(), n)
			if err != nil {
				return err
			}
			defer stop()
			o.Port = port
			return fleetbench.Measure(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Program, "warmpath", besideThis("warmpath"), "the router's program")
	f.IntVar(&o.Nodes, "nodes", 1000, "nodes of the large fleet, at most 1024")
	f.StringSliceVar(&o.Cases, "case", nil, "cases to measure; default all")
	f.DurationVar(&o.Idle, "idle", time.Minute, "for which the router is watched while nobody asks")
	f.DurationVar(&o.Load, "load", 20*time.Second, "for which requests come after that")
	f.Float64Var(&o.Rate, "rate", 200, "requests a second")
	f.IntVar(&o.PromptBytes, "size", 4096, "bytes of a request's body")
	f.IntVar(&o.Runs, "runs", 3, "of each case, in turns")
	f.StringArrayVar(&o.Config, "config", nil, "a further line of the router's configuration")
	f.IntVar(&n.MetricsBytes, "metrics-bytes", n.MetricsBytes, "of a node's metrics text")
	f.BoolVar(&n.Still, "still", false, "let nodes' figures never change")
	f.BoolVar(&n.Whole, "whole", false, "let nodes give their whole metrics text, whatever they are asked for")
	return cmd
}

// newNodesCommand is the nodes' process.
func newNodesCommand() *cobra.Command {
	var o fleetbench.NodesOptions
	cmd := &cobra.Command{
		Use:    "fleet-nodes",
		Short:  "Serve many nodes, each at an address of its own, that have metrics as long as vLLM's",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fleetbench.Serve(cmd.Context(), o, func() {
				fmt.Fprintf(cmd.OutOrStdout(), "%d nodes, from %s on\n", o.Nodes, fleetbench.Address(0, o.Port))
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Nodes, "nodes", 1000, "how many")
	f.IntVar(&o.Port, "port", 9000, "the same for all")
	f.IntVar(&o.MetricsBytes, "metrics-bytes", metricsBytes, "of a metrics text")
	f.BoolVar(&o.Still, "still", false, "figures never change")
	f.BoolVar(&o.Whole, "whole", false, "nodes give their whole metrics text, whatever they are asked for")
	return cmd
}

// startNodes runs this program as the nodes and returns their port.
func startNodes(ctx context.Context, o fleetbench.NodesOptions) (port int, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, nil, fmt.Errorf("find own executable: %w", err)
	}
	const lowest, ports = 20000, 12000 // below those that connections get by themselves
	port = lowest + os.Getpid()%ports
	nodes := exec.CommandContext(ctx, self, "fleet-nodes", "--nodes", strconv.Itoa(o.Nodes), "--port", strconv.Itoa(port),
		"--metrics-bytes", strconv.Itoa(o.MetricsBytes), "--still="+strconv.FormatBool(o.Still), "--whole="+strconv.FormatBool(o.Whole))
	nodes.Stderr = os.Stderr
	nodes.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := nodes.Start(); err != nil {
		return 0, nil, fmt.Errorf("start the nodes: %w", err)
	}
	stop = func() {
		_ = nodes.Process.Signal(syscall.SIGTERM)
		_ = nodes.Wait()
	}
	last := fleetbench.Address(o.Nodes-1, port)
	for range 500 {
		if c, err := net.Dial("tcp", last); err == nil {
			_ = c.Close()
			return port, stop, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	return 0, nil, fmt.Errorf("the node at %s does not listen", last)
}

// besideThis is the path of a program in this one's folder.
func besideThis(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}
