//go:build !purego

#include "textflag.h"

// func prefetch(l *lines, n int)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVQ l+0(FP), AX
	MOVQ n+8(FP), BX
	LEAQ (AX)(BX*8), BX
	JMP  check

next:
	MOVQ (AX), CX
	PREFETCHT0 (CX)
	ADDQ $8, AX

check:
	CMPQ AX, BX
	JLT  next
	RET
