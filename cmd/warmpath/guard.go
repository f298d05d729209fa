package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"warmpath/controlplane/admin"
	"warmpath/controlplane/config"
	"warmpath/controlplane/guard"
)

func newGuard() *cobra.Command {
	cmd := &cobra.Command{
		Use: "guard", Short: "Say how the guard of the clients' interface is and what it has dropped", GroupID: "read", Args: cobra.NoArgs,
		Long: `Say how the guard is (XDP, kernel.xdp of the configuration): where it is attached, what it limits,
and what became of the packets that it met.`,
	}
	f := addAdminFlags(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := f.call(http.MethodGet, "/api/kernel", nil)
		if err != nil {
			return err
		}
		return show(cmd, f, answer, printGuard)
	}
	return cmd
}

func printGuard(w io.Writer, v *admin.KernelView) {
	x := &v.XDP
	fmt.Fprintf(w, "guard\t%s\t%s\n", x.State, x.Reason)
	if x.State != guard.StateOn {
		fmt.Fprintf(w, "remedy\t%s\n", x.Remedy)
		return
	}
	fmt.Fprintf(w, "interface\t%s\t%s, program %d\n", x.Interface, x.Mode, x.ProgramID)
	pinned := "yes: it outlives the router"
	if !x.Pinned {
		pinned = "no: " + x.NotPinned
	}
	fmt.Fprintf(w, "pinned\t%s\n", pinned)
	fmt.Fprintf(w, "lists\t%d denied, %d allowed\n", x.Lists[guard.Deny], x.Lists[guard.Allow])
	fmt.Fprintf(w, "limits\t%d a second of a source, %d a port; 0 = no bound\n", x.Limits.SynPerSource, x.Limits.SynPerPort)
	fmt.Fprintf(w, "shed\t%s\t%.1f %% of new connections now\n", x.Shed.Setting, 100*x.Shed.Share)
	fmt.Fprintf(w, "\nPORT\tSYNS\tDROPPED\n")
	for _, port := range slices.Sorted(maps.Keys(x.Ports)) {
		fmt.Fprintf(w, "%s\t%d\t%d\n", port, x.Ports[port].SYNs, x.Ports[port].Dropped)
	}
	fmt.Fprintf(w, "\nVERDICT\tPACKETS\n")
	for _, verdict := range slices.Sorted(maps.Keys(x.Packets)) {
		fmt.Fprintf(w, "%s\t%d\n", verdict, x.Packets[verdict])
	}
}

func newUnguard() *cobra.Command {
	cmd := &cobra.Command{
		Use: "unguard INTERFACE", Short: "Take a guard off that a router left pinned", GroupID: "change", Args: cobra.ExactArgs(1),
		Long: `Take a guard off that a router left pinned on an interface when it ended, with all that is
pinned of it. One that a running router tends is left: take kernel.xdp.interface out of its
configuration and reload.`,
	}
	pin := cmd.Flags().String("pin", config.Default().Kernel.XDP.Pin, "folder that it is pinned in (kernel.xdp.pin)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := guard.TakeOff(*pin, args[0]); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: guard taken off\n", args[0])
		return err
	}
	return cmd
}
