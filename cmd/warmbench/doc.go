// Command warmbench measures warmpath and its peers. It prints one JSON object
// a line on standard output, and tables for people on standard error.
package main
