//go:build race

package tokenbench

const raceEnabled = true
