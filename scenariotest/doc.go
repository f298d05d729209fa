// Package scenariotest runs scenario files: behaviour as data that a person can
// read, and change, without reading the test.
//
// A file is a list of cases, each ended by an empty line or the file's end:
//
//	# Why this case is there.
//	command
//	more input
//	----
//	what comes of it
//
// Lines that begin with # before a case are prose. With the flag -rewrite of the
// test, what comes of the cases is written into the files instead of compared.
//
// It is for tests alone, knows nothing of what it runs, and writes to no other file.
package scenariotest
