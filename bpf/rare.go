package bpf

// TellErrors attaches the program that tells of sockets' errors, with their
// numbers. An error leaves what runs as it is.
func (f *Flow) TellErrors() (err error) {
	f.errors, err = f.trace("errors", loadErrors)
	return err
}

// TellWindows attaches the program that tells of nodes that take nothing more. An
// error leaves what runs as it is.
func (f *Flow) TellWindows() (err error) {
	f.windows, err = f.trace("windows", loadWindows)
	return err
}
