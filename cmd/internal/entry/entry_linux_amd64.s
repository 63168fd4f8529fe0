#include "go_asm.h"
#include "textflag.h"

#define SYS_write	1
#define SYS_fcntl	72
#define SYS_getuid	102
#define SYS_exit_group	231
#define SYS_prlimit64	302

#define F_GETFD		1
#define EBADF		9
#define EXIT_CANNOT_RUN	125

// limit is a struct rlimit64: the soft limit, then the hard one.
GLOBL ·limit(SB), NOPTR, $16

// cubby_entry is where the kernel starts the process: arguments and environment
// are on the stack, which is left as it is, and there is no Go yet. It makes no
// system call that Go's runtime and package os do not make at every start, but for
// getuid; where one is refused, it goes on as if it had not asked.
TEXT cubby_entry(SB),NOSPLIT|NOFRAME,$0
	MOVQ	DX, R15	// the one register with a meaning here, for a dynamic loader

	// closed[fd] = fcntl(fd, F_GETFD) == -EBADF
	LEAQ	·closed(SB), R8
	MOVL	$1, DI
descriptor:
	MOVL	$SYS_fcntl, AX
	MOVL	$F_GETFD, SI
	XORL	DX, DX
	SYSCALL
	CMPQ	AX, $-EBADF
	SETEQ	(R8)(DI*1)
	INCL	DI
	CMPL	DI, $3
	JLT	descriptor

	// R12: how many needs there are; the last is not root's
	MOVL	$const_needCount, R12
	MOVL	$SYS_getuid, AX
	SYSCALL
	TESTQ	AX, AX
	JNZ	user
	DECL	R12
user:
	LEAQ	·needs(SB), R13

limit:
	// prlimit64(0, resource, NULL, &limit)
	MOVL	$SYS_prlimit64, AX
	XORL	DI, DI
	MOVQ	need_resource(R13), SI
	XORL	DX, DX
	LEAQ	·limit(SB), R10
	SYSCALL
	TESTQ	AX, AX
	JNZ	next
	MOVQ	need_least(R13), R8
	CMPQ	·limit+0(SB), R8
	JCC	next
	MOVQ	·limit+8(SB), R9
	CMPQ	R9, R8
	JCS	refuse

	// The process may raise it: prlimit64(0, resource, &limit, NULL)
	MOVQ	R9, ·limit+0(SB)
	MOVL	$SYS_prlimit64, AX
	MOVQ	R10, DX
	XORL	R10, R10
	SYSCALL
next:
	ADDQ	$need__size, R13
	DECL	R12
	JNZ	limit

	MOVQ	R15, DX
	JMP	_rt0_amd64_linux(SB)

refuse:
	MOVL	$SYS_write, AX
	MOVL	$2, DI
	MOVQ	need_told(R13), SI
	MOVQ	(need_told+8)(R13), DX
	SYSCALL
	MOVL	$SYS_exit_group, AX
	MOVL	$EXIT_CANNOT_RUN, DI
	SYSCALL
	INT	$3	// not reached
