//go:build !purego

package scan

// eachWay calls f with each kind of blocks that this machine has in use.
func eachWay(f func(way string)) {
	had := hasBlocks512
	defer func() { hasBlocks512 = had }()
	if had {
		f("AVX-512")
	}
	hasBlocks512 = false
	f("AVX2")
}
