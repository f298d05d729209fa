//go:build !purego

#include "textflag.h"

// Technique: J. Keiser and D. Lemire, "Validating UTF-8 In Less Than One
// Instruction Per Byte" (2021) for the characters, G. Langdale and D. Lemire,
// "Parsing Gigabytes of JSON per Second" (2019) for runs of backslashes.

// What a byte with this low half may be: bits 0 to 3 an escaped character of
// upper half 2, 5, 6, 7; bits 4 and 5 a hexadecimal digit of upper half 3, 4 or 6.
DATA classLow<>+0(SB)/8, $0x10343838303d3010
DATA classLow<>+8(SB)/8, $0x0104000200001010
DATA classLow<>+16(SB)/8, $0x10343838303d3010
DATA classLow<>+24(SB)/8, $0x0104000200001010
GLOBL classLow<>(SB), RODATA|NOPTR, $32

// The same bits by upper half; a byte is what both tables agree on.
DATA classHigh<>+0(SB)/8, $0x0824022010010000
DATA classHigh<>+8(SB)/8, $0x0000000000000000
DATA classHigh<>+16(SB)/8, $0x0824022010010000
DATA classHigh<>+24(SB)/8, $0x0000000000000000
GLOBL classHigh<>(SB), RODATA|NOPTR, $32

// UTF-8 errors of two bytes in a row that the upper half of the first allows …
DATA firstHigh<>+0(SB)/8, $0x0202020202020202
DATA firstHigh<>+8(SB)/8, $0x4915012180808080
DATA firstHigh<>+16(SB)/8, $0x0202020202020202
DATA firstHigh<>+24(SB)/8, $0x4915012180808080
GLOBL firstHigh<>(SB), RODATA|NOPTR, $32

// … its lower half …
DATA firstLow<>+0(SB)/8, $0xcbcbcb8b8383a3e7
DATA firstLow<>+8(SB)/8, $0xcbcbdbcbcbcbcbcb
DATA firstLow<>+16(SB)/8, $0xcbcbcb8b8383a3e7
DATA firstLow<>+24(SB)/8, $0xcbcbdbcbcbcbcbcb
GLOBL firstLow<>(SB), RODATA|NOPTR, $32

// … and the upper half of the second.
DATA secondHigh<>+0(SB)/8, $0x0101010101010101
DATA secondHigh<>+8(SB)/8, $0x01010101babaaee6
DATA secondHigh<>+16(SB)/8, $0x0101010101010101
DATA secondHigh<>+24(SB)/8, $0x01010101babaaee6
GLOBL secondHigh<>(SB), RODATA|NOPTR, $32

// Masks and bounds.
DATA lowHalf<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA lowHalf<>+8(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA lowHalf<>+16(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA lowHalf<>+24(SB)/8, $0x0f0f0f0f0f0f0f0f
GLOBL lowHalf<>(SB), RODATA|NOPTR, $32

// The bits of a hexadecimal digit in the classes.
DATA hexBits<>+0(SB)/8, $0x3030303030303030
DATA hexBits<>+8(SB)/8, $0x3030303030303030
DATA hexBits<>+16(SB)/8, $0x3030303030303030
DATA hexBits<>+24(SB)/8, $0x3030303030303030
GLOBL hexBits<>(SB), RODATA|NOPTR, $32

// The high bit, which a byte within a long character must have.
DATA highBit<>+0(SB)/8, $0x8080808080808080
DATA highBit<>+8(SB)/8, $0x8080808080808080
DATA highBit<>+16(SB)/8, $0x8080808080808080
DATA highBit<>+24(SB)/8, $0x8080808080808080
GLOBL highBit<>(SB), RODATA|NOPTR, $32

// A lead of three bytes or more, less this, has the high bit.
DATA lead3<>+0(SB)/8, $0x6060606060606060
DATA lead3<>+8(SB)/8, $0x6060606060606060
DATA lead3<>+16(SB)/8, $0x6060606060606060
DATA lead3<>+24(SB)/8, $0x6060606060606060
GLOBL lead3<>(SB), RODATA|NOPTR, $32

// A lead of four bytes, less this, has the high bit.
DATA lead4<>+0(SB)/8, $0x7070707070707070
DATA lead4<>+8(SB)/8, $0x7070707070707070
DATA lead4<>+16(SB)/8, $0x7070707070707070
DATA lead4<>+24(SB)/8, $0x7070707070707070
GLOBL lead4<>(SB), RODATA|NOPTR, $32

// The letter that begins a code unit in hexadecimal.
DATA letterU<>+0(SB)/8, $0x7575757575757575
DATA letterU<>+8(SB)/8, $0x7575757575757575
DATA letterU<>+16(SB)/8, $0x7575757575757575
DATA letterU<>+24(SB)/8, $0x7575757575757575
GLOBL letterU<>(SB), RODATA|NOPTR, $32

// What makes a closer look necessary.
DATA quotes<>+0(SB)/8, $0x2222222222222222
DATA quotes<>+8(SB)/8, $0x2222222222222222
DATA quotes<>+16(SB)/8, $0x2222222222222222
DATA quotes<>+24(SB)/8, $0x2222222222222222
GLOBL quotes<>(SB), RODATA|NOPTR, $32

// A backslash in each lane.
DATA backslashes<>+0(SB)/8, $0x5c5c5c5c5c5c5c5c
DATA backslashes<>+8(SB)/8, $0x5c5c5c5c5c5c5c5c
DATA backslashes<>+16(SB)/8, $0x5c5c5c5c5c5c5c5c
DATA backslashes<>+24(SB)/8, $0x5c5c5c5c5c5c5c5c
GLOBL backslashes<>(SB), RODATA|NOPTR, $32

// The last control character.
DATA controls<>+0(SB)/8, $0x1f1f1f1f1f1f1f1f
DATA controls<>+8(SB)/8, $0x1f1f1f1f1f1f1f1f
DATA controls<>+16(SB)/8, $0x1f1f1f1f1f1f1f1f
DATA controls<>+24(SB)/8, $0x1f1f1f1f1f1f1f1f
GLOBL controls<>(SB), RODATA|NOPTR, $32

// MASK gathers the high bits of two vectors in one 64-bit mask. Clobbers R15.
#define MASK(low, high, mask) \
	VPMOVMSKB low, mask   \
	VPMOVMSKB high, R15   \
	SHLQ      $32, R15    \
	ORQ       R15, mask

// CLASSIFY leaves the classes of the bytes of text in class. Clobbers Y12.
// Wants classLow in Y10, classHigh in Y11, lowHalf in Y9.
#define CLASSIFY(text, class) \
	VPSRLW  $4, text, Y12      \
	VPAND   Y9, Y12, Y12       \
	VPSHUFB Y12, Y11, Y12      \
	VPSHUFB text, Y10, class   \
	VPAND   Y12, class, class

// CHARACTERS leaves zero in the bytes of bad where text, which lies at off
// from DI, goes on with valid UTF-8. Clobbers Y6, Y7. Wants lowHalf in Y9,
// firstHigh in Y10, firstLow in Y11, secondHigh in Y12.
#define CHARACTERS(text, off, bad) \
	VMOVDQU  (off-1)(DI), Y6            \
	VPSRLW   $4, Y6, Y7                 \
	VPAND    Y9, Y7, Y7                 \
	VPSHUFB  Y7, Y10, bad               \
	VPAND    Y9, Y6, Y6                 \
	VPSHUFB  Y6, Y11, Y6                \
	VPAND    Y6, bad, bad               \
	VPSRLW   $4, text, Y7               \
	VPAND    Y9, Y7, Y7                 \
	VPSHUFB  Y7, Y12, Y7                \
	VPAND    Y7, bad, bad               \
	VMOVDQU  (off-2)(DI), Y6            \
	VPSUBUSB lead3<>(SB), Y6, Y6        \
	VMOVDQU  (off-3)(DI), Y7            \
	VPSUBUSB lead4<>(SB), Y7, Y7        \
	VPOR     Y6, Y7, Y7                 \
	VPAND    highBit<>(SB), Y7, Y7      \
	VPXOR    Y7, bad, bad

// ESCAPED leaves in DX the characters that a backslash escapes, and in BX 1 if the
// block's last backslash escapes the first character behind it. Subtracting the
// backslashes from the places after them lets a borrow run through each run of them.
// Clobbers R15. Wants pending in R8, the backslashes in R14.
#define ESCAPED \
	MOVQ R8, DX \
	NOTQ DX \
	ANDQ R14, DX \
	LEAQ (DX)(DX*1), BX \
	MOVQ $0xAAAAAAAAAAAAAAAA, R15 \
	ORQ  R15, BX \
	SUBQ DX, BX \
	XORQ R15, BX \
	MOVQ R14, DX \
	ORQ  R8, DX \
	XORQ BX, DX \
	ANDQ R14, BX \
	SHRQ $63, BX

// ANSWER ends textBlocks, at the quotes of AX in the block at DI or where it stops.
// Of the errors in R12 and the backslashes in R14 only what lies before the quote
// counts, and the quote itself, where a character or a code unit that is cut off
// shows. Clobbers BX.
#define ANSWER \
quote: \
	LEAQ  -1(AX), BX \
	XORQ  AX, BX \
	TESTQ BX, R12 \
	JNZ   stop \
	ANDQ  BX, R14 \
	ORQ   R14, R10 \
	BSFQ  AX, AX \
	SUBQ  SI, DI \
	ADDQ  DI, AX \
	MOVQ  AX, q+16(FP) \
	MOVQ  $1, quote+24(FP) \
	JMP   done \
 \
stop: \
	SUBQ SI, DI \
	MOVQ DI, q+16(FP) \
	MOVQ $0, quote+24(FP) \
 \
done: \
	MOVQ R10, escaped+32(FP) \
	MOVQ R8, pending+40(FP) \
	MOVQ R9, digits+48(FP) \
	VZEROUPPER \
	RET

// func textBlocks(p *byte, n int) (q int, quote, escaped, pending, digits uint64)
//
// SI start, DI block, CX bytes left, R8 pending, R9 digits, R10 escaped,
// R11 whether the block before ended within or after a non-ASCII character;
// within a block: AX quotes, R12 errors, R13 non-ASCII bytes, R14 backslashes.
// R14 and R15 are free here: the wrapper of an ABI0 function restores them.
TEXT ·textBlocks(SB), NOSPLIT, $16-56
	MOVQ    p+0(FP), SI
	MOVQ    n+8(FP), CX
	MOVQ    SI, DI
	XORQ    R8, R8
	XORQ    R9, R9
	XORQ    R10, R10
	XORQ    R11, R11
	VMOVDQU quotes<>(SB), Y15
	VMOVDQU backslashes<>(SB), Y14
	VMOVDQU controls<>(SB), Y13

block:
	CMPQ      CX, $64
	JB        stop
	VMOVDQU   (DI), Y0
	VMOVDQU   32(DI), Y1
	VPCMPEQB  Y15, Y0, Y2
	VPCMPEQB  Y15, Y1, Y3
	VPCMPEQB  Y14, Y0, Y4
	VPCMPEQB  Y14, Y1, Y5
	VPMINUB   Y13, Y0, Y6
	VPCMPEQB  Y6, Y0, Y6
	VPMINUB   Y13, Y1, Y7
	VPCMPEQB  Y7, Y1, Y7
	VPOR      Y2, Y4, Y8
	VPOR      Y6, Y0, Y9
	VPOR      Y3, Y5, Y10
	VPOR      Y7, Y1, Y11
	VPOR      Y8, Y9, Y8
	VPOR      Y10, Y11, Y10
	VPOR      Y8, Y10, Y8
	VPMOVMSKB Y8, AX
	ORQ       R8, AX
	ORQ       R9, AX
	ORQ       R11, AX
	JNZ       look
	ADDQ      $64, DI
	SUBQ      $64, CX
	JMP       block

look:
	MASK(Y2, Y3, AX)
	MASK(Y6, Y7, R12)
	MASK(Y0, Y1, R13)
	MASK(Y4, Y5, R14)
	MOVQ    $0, next_pending-8(SP)
	MOVQ    $0, next_digits-16(SP)
	VMOVDQU lowHalf<>(SB), Y9
	MOVQ    R14, DX
	ORQ     R8, DX
	ORQ     R9, DX
	JZ      characters

	ESCAPED
	MOVQ BX, next_pending-8(SP)

	// An escaped quote is text.
	MOVQ DX, BX
	NOTQ BX
	ANDQ BX, AX

	// Escaped characters that must not be.
	VMOVDQU  classLow<>(SB), Y10
	VMOVDQU  classHigh<>(SB), Y11
	CLASSIFY(Y0, Y2)
	CLASSIFY(Y1, Y3)
	VPXOR    Y8, Y8, Y8
	VPAND    Y9, Y2, Y4
	VPAND    Y9, Y3, Y5
	VPCMPEQB Y8, Y4, Y4
	VPCMPEQB Y8, Y5, Y5
	MASK(Y4, Y5, BX)
	ANDQ     DX, BX
	ORQ      BX, R12

	// DX: the letters u that begin a code unit; BX: where its digits are due.
	VMOVDQU  letterU<>(SB), Y4
	VPCMPEQB Y4, Y1, Y5
	VPCMPEQB Y4, Y0, Y4
	MASK(Y4, Y5, BX)
	ANDQ     BX, DX
	MOVQ     R9, BX
	ORQ      DX, BX
	JZ       characters

	// Four places from each letter on, and what the block before left over;
	// what runs over the end is due in the next block.
	MOVQ DX, BX
	SHLQ $1, BX
	MOVQ DX, R15
	SHLQ $2, R15
	ORQ  R15, BX
	MOVQ BX, R15
	SHLQ $2, R15
	ORQ  R15, BX
	ORQ  R9, BX
	VMOVDQU  hexBits<>(SB), Y4
	VPAND    Y4, Y3, Y5
	VPAND    Y4, Y2, Y4
	VPCMPEQB Y8, Y4, Y4
	VPCMPEQB Y8, Y5, Y5
	MOVQ     DX, R15
	SHRQ     $60, R15
	MOVQ     R15, DX
	SHRQ     $1, R15
	ORQ      R15, DX
	MOVQ     DX, R15
	SHRQ     $2, R15
	ORQ      R15, DX
	MOVQ     DX, next_digits-16(SP)
	MASK(Y4, Y5, DX)
	ANDQ     DX, BX
	ORQ      BX, R12

characters:
	MOVQ     R13, DX
	ORQ      R11, DX
	JZ       decide
	VMOVDQU  firstHigh<>(SB), Y10
	VMOVDQU  firstLow<>(SB), Y11
	VMOVDQU  secondHigh<>(SB), Y12
	CHARACTERS(Y0, 0, Y4)
	CHARACTERS(Y1, 32, Y5)
	VPXOR    Y8, Y8, Y8
	VPCMPEQB Y8, Y4, Y4
	VPCMPEQB Y8, Y5, Y5
	MASK(Y4, Y5, DX)
	NOTQ     DX
	ORQ      DX, R12

decide:
	TESTQ AX, AX
	JNZ   quote
	TESTQ R12, R12
	JNZ   stop
	ORQ   R14, R10
	MOVQ  next_pending-8(SP), R8
	MOVQ  next_digits-16(SP), R9
	MOVQ  R13, R11
	SHRQ  $63, R11
	ADDQ  $64, DI
	SUBQ  $64, CX
	JMP   block

	ANSWER

// func textBlocks512(p *byte, n int) (q int, quote, escaped, pending, digits uint64)
//
// A block a vector, masks in mask registers; tables and constants stay in Z16 to
// Z29 for all blocks. SI start, DI block, CX bytes left, R8 pending, R9 digits, R10 escaped,
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
	VPBROADCASTB    quotes<>(SB), Z16
	VPBROADCASTB    backslashes<>(SB), Z17
	VPBROADCASTB    controls<>(SB), Z18
	VPBROADCASTB    lowHalf<>(SB), Z19
	VPBROADCASTB    letterU<>(SB), Z20
	VPBROADCASTB    hexBits<>(SB), Z21
	VPBROADCASTB    lead3<>(SB), Z22
	VPBROADCASTB    lead4<>(SB), Z23
	VPBROADCASTB    highBit<>(SB), Z24
	VBROADCASTI32X4 classLow<>(SB), Z25
	VBROADCASTI32X4 classHigh<>(SB), Z26
	VBROADCASTI32X4 firstHigh<>(SB), Z27
	VBROADCASTI32X4 firstLow<>(SB), Z28
	VBROADCASTI32X4 secondHigh<>(SB), Z29

block:
	CMPQ      CX, $64
	JB        stop
	VMOVDQU64 (DI), Z0
	VPCMPEQB  Z16, Z0, K1
	VPCMPEQB  Z17, Z0, K2
	VPCMPUB   $2, Z18, Z0, K3
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

	ESCAPED
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

	ANSWER
