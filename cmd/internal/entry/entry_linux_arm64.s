#include "go_asm.h"
#include "textflag.h"

#define SYS_fcntl	25
#define SYS_write	64
#define SYS_exit_group	94
#define SYS_getuid	174
#define SYS_prlimit64	261

#define F_GETFD		1
#define EBADF		9
#define EXIT_CANNOT_RUN	125

// limit is a struct rlimit64: the soft limit, then the hard one.
GLOBL ·limit(SB), NOPTR, $16

// cubby_entry is as on amd64, which see.
TEXT cubby_entry(SB),NOSPLIT|NOFRAME,$0
	MOVD	R0, R19	// the one register with a meaning here, for a dynamic loader

	// closed[fd] = fcntl(fd, F_GETFD) == -EBADF
	MOVD	$·closed(SB), R20
	MOVD	$1, R21
descriptor:
	MOVD	$SYS_fcntl, R8
	MOVD	R21, R0
	MOVD	$F_GETFD, R1
	MOVD	$0, R2
	SVC
	CMN	$EBADF, R0
	CSET	EQ, R3
	MOVB	R3, (R20)(R21)
	ADD	$1, R21
	CMP	$3, R21
	BLT	descriptor

	// R21: how many needs there are; the last is not root's
	MOVD	$const_needCount, R21
	MOVD	$SYS_getuid, R8
	SVC
	CBNZ	R0, user
	SUB	$1, R21
user:
	MOVD	$·needs(SB), R20
	MOVD	$·limit(SB), R22

limit:
	// prlimit64(0, resource, NULL, &limit)
	MOVD	$SYS_prlimit64, R8
	MOVD	$0, R0
	MOVD	need_resource(R20), R1
	MOVD	$0, R2
	MOVD	R22, R3
	SVC
	CBNZ	R0, next
	MOVD	need_least(R20), R4
	MOVD	0(R22), R5
	CMP	R4, R5
	BHS	next
	MOVD	8(R22), R5
	CMP	R4, R5
	BLO	refuse

	// The process may raise it: prlimit64(0, resource, &limit, NULL)
	MOVD	R5, 0(R22)
	MOVD	$SYS_prlimit64, R8
	MOVD	R22, R2
	MOVD	$0, R3
	SVC
next:
	ADD	$need__size, R20
	SUB	$1, R21
	CBNZ	R21, limit

	MOVD	R19, R0
	JMP	_rt0_arm64_linux(SB)

refuse:
	MOVD	$SYS_write, R8
	MOVD	$2, R0
	MOVD	need_told(R20), R1
	MOVD	(need_told+8)(R20), R2
	SVC
	MOVD	$SYS_exit_group, R8
	MOVD	$EXIT_CANNOT_RUN, R0
	SVC
	BRK	// not reached
