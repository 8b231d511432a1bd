/* Runs a program under a filter of system calls.

   filter allow|kill PROGRAM ARGUMENTS...: with `kill`, shmget kills the process. */

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int count, char **words)
{
	unsigned then = count > 2 && strcmp(words[1], "kill") == 0 ? SECCOMP_RET_KILL_PROCESS
								   : SECCOMP_RET_ALLOW;
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_shmget, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, then),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof code / sizeof *code, code };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
		printf("no filter\n");
		return 1;
	}
	execvp(words[2], words + 2);
	return 127;
}
