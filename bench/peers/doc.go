// Package peers holds the exact configurations with which other proxies, and
// warmpath itself, are measured: text templates over Values, embedded so that
// warmbench finds them wherever it is started. It also holds the script that
// draws what was measured. The package never runs anything.
package peers
