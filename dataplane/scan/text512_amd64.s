//go:build !purego

#include "textflag.h"

// The technique is that of text_amd64.s, a block a vector, masks in mask
// registers. Tables and constants stay in Z16 to Z29 for all blocks.

// What is broadcast: tables of 16 bytes (see text_amd64.s) …
DATA tables512<>+0(SB)/8, $0x10343838303d3010  // classLow
DATA tables512<>+8(SB)/8, $0x0104000200001010
DATA tables512<>+16(SB)/8, $0x0824022010010000 // classHigh
DATA tables512<>+24(SB)/8, $0x0000000000000000
DATA tables512<>+32(SB)/8, $0x0202020202020202 // firstHigh
DATA tables512<>+40(SB)/8, $0x4915012180808080
DATA tables512<>+48(SB)/8, $0xcbcbcb8b8383a3e7 // firstLow
DATA tables512<>+56(SB)/8, $0xcbcbdbcbcbcbcbcb
DATA tables512<>+64(SB)/8, $0x0101010101010101 // secondHigh
DATA tables512<>+72(SB)/8, $0x01010101babaaee6
GLOBL tables512<>(SB), RODATA|NOPTR, $80

// … and bytes: quote, backslash, first that is no control, low half, u, the bits
// of a hexadecimal digit, lead3, lead4 (see text_amd64.s), high bit.
DATA bytes512<>+0(SB)/8, $0x706030750f205c22
DATA bytes512<>+8(SB)/1, $0x80
GLOBL bytes512<>(SB), RODATA|NOPTR, $9

// func textBlocks512(p *byte, n int) (q int, quote, escaped, pending, digits uint64)
//
// SI start, DI block, CX bytes left, R8 pending, R9 digits, R10 escaped,
// R11 whether the block before ended within or after a non-ASCII character,
// R15 whether any of R8, R9, R11 is not zero; within a block: AX quotes,
// R12 errors, R13 non-ASCII bytes, R14 backslashes, R15 pending of the next
// block, K7 its digits.
TEXT ·textBlocks512(SB), NOSPLIT, $0-56
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ SI, DI
	XORQ R8, R8
	XORQ R9, R9
	XORQ R10, R10
	XORQ R11, R11
	XORQ R15, R15
	VPBROADCASTB   bytes512<>+0(SB), Z16
	VPBROADCASTB   bytes512<>+1(SB), Z17
	VPBROADCASTB   bytes512<>+2(SB), Z18
	VPBROADCASTB   bytes512<>+3(SB), Z19
	VPBROADCASTB   bytes512<>+4(SB), Z20
	VPBROADCASTB   bytes512<>+5(SB), Z21
	VPBROADCASTB   bytes512<>+6(SB), Z22
	VPBROADCASTB   bytes512<>+7(SB), Z23
	VPBROADCASTB   bytes512<>+8(SB), Z24
	VBROADCASTI32X4 tables512<>+0(SB), Z25
	VBROADCASTI32X4 tables512<>+16(SB), Z26
	VBROADCASTI32X4 tables512<>+32(SB), Z27
	VBROADCASTI32X4 tables512<>+48(SB), Z28
	VBROADCASTI32X4 tables512<>+64(SB), Z29

block:
	CMPQ      CX, $64
	JB        stop
	VMOVDQU64 (DI), Z0
	VPCMPEQB  Z16, Z0, K1
	VPCMPEQB  Z17, Z0, K2
	VPCMPUB   $1, Z18, Z0, K3
	VPMOVB2M  Z0, K4
	KORQ      K1, K2, K5
	KORQ      K3, K4, K6
	KORTESTQ  K5, K6
	JNZ       look
	TESTQ     R15, R15
	JNZ       look
	ADDQ      $64, DI
	SUBQ      $64, CX
	JMP       block

look:
	KMOVQ K1, AX
	KMOVQ K2, R14
	KMOVQ K3, R12
	KMOVQ K4, R13
	KXORQ K7, K7, K7
	XORQ  R15, R15
	MOVQ  R14, DX
	ORQ   R8, DX
	ORQ   R9, DX
	JZ    characters

	// DX: the characters that a backslash escapes. Subtracting the backslashes
	// from the places after them lets a borrow run through each run of them.
	MOVQ R8, DX
	NOTQ DX
	ANDQ R14, DX
	LEAQ (DX)(DX*1), BX
	MOVQ $0xAAAAAAAAAAAAAAAA, R15
	ORQ  R15, BX
	SUBQ DX, BX
	XORQ R15, BX
	MOVQ R14, DX
	ORQ  R8, DX
	XORQ BX, DX
	ANDQ R14, BX
	SHRQ $63, BX
	MOVQ BX, R15

	// An escaped quote is text.
	MOVQ DX, BX
	NOTQ BX
	ANDQ BX, AX

	// Escaped characters that must not be; Z2: the classes.
	KMOVQ     DX, K5
	VPSRLW    $4, Z0, Z1
	VPANDQ    Z19, Z1, Z1
	VPSHUFB   Z1, Z26, Z1
	VPSHUFB   Z0, Z25, Z2
	VPANDQ    Z1, Z2, Z2
	VPTESTNMB Z19, Z2, K5, K6
	KMOVQ     K6, BX
	ORQ       BX, R12

	// DX: the letters u that begin a code unit.
	VPCMPEQB Z20, Z0, K5, K6
	KMOVQ    K6, DX
	MOVQ     R9, BX
	ORQ      DX, BX
	JZ       characters

	// BX: four places from each letter on, and what the block before left over;
	// what runs over the end is due in the next block.
	KMOVQ     R15, K5
	LEAQ      (DX)(DX*1), BX
	LEAQ      (BX)(BX*1), R15
	ORQ       R15, BX
	LEAQ      (BX*4), R15
	ORQ       R15, BX
	ORQ       R9, BX
	VPTESTNMB Z21, Z2, K6
	SHRQ      $60, DX
	MOVQ      DX, R15
	SHRQ      $1, DX
	ORQ       R15, DX
	MOVQ      DX, R15
	SHRQ      $2, R15
	ORQ       R15, DX
	KMOVQ     DX, K7
	KMOVQ     K6, DX
	ANDQ      DX, BX
	ORQ       BX, R12
	KMOVQ     K5, R15

characters:
	MOVQ      R13, DX
	ORQ       R11, DX
	JZ        decide
	VMOVDQU64 -1(DI), Z1
	VPSRLW    $4, Z1, Z2
	VPANDQ    Z19, Z2, Z2
	VPSHUFB   Z2, Z27, Z3
	VPANDQ    Z19, Z1, Z1
	VPSHUFB   Z1, Z28, Z1
	VPANDQ    Z1, Z3, Z3
	VPSRLW    $4, Z0, Z2
	VPANDQ    Z19, Z2, Z2
	VPSHUFB   Z2, Z29, Z2
	VPANDQ    Z2, Z3, Z3
	VMOVDQU64 -2(DI), Z1
	VPSUBUSB  Z22, Z1, Z1
	VMOVDQU64 -3(DI), Z2
	VPSUBUSB  Z23, Z2, Z2
	VPORQ     Z1, Z2, Z2
	VPANDQ    Z24, Z2, Z2
	VPXORQ    Z2, Z3, Z3
	VPTESTMB  Z3, Z3, K6
	KMOVQ     K6, DX
	ORQ       DX, R12

decide:
	TESTQ AX, AX
	JNZ   quote
	TESTQ R12, R12
	JNZ   stop
	ORQ   R14, R10
	MOVQ  R15, R8
	KMOVQ K7, R9
	MOVQ  R13, R11
	SHRQ  $63, R11
	ORQ   R11, R15
	ORQ   R9, R15
	ADDQ  $64, DI
	SUBQ  $64, CX
	JMP   block

quote:
	// Only what lies before the quote counts, and the quote itself, where a
	// character or a code unit that is cut off shows.
	LEAQ  -1(AX), BX
	XORQ  AX, BX
	TESTQ BX, R12
	JNZ   stop
	ANDQ  BX, R14
	ORQ   R14, R10
	BSFQ  AX, AX
	SUBQ  SI, DI
	ADDQ  DI, AX
	MOVQ  AX, q+16(FP)
	MOVQ  $1, quote+24(FP)
	JMP   done

stop:
	SUBQ SI, DI
	MOVQ DI, q+16(FP)
	MOVQ $0, quote+24(FP)

done:
	MOVQ       R10, escaped+32(FP)
	MOVQ       R8, pending+40(FP)
	MOVQ       R9, digits+48(FP)
	VZEROUPPER
	RET
