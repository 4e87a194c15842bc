#define _GNU_SOURCE
#include "call-filter.h"

#include <errno.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/net.h>
#include <linux/seccomp.h>

#ifndef __x86_64__
#error "the filter has the numbers of x86-64, x32 and i386"
#endif

/* x32 calls have the x86-64 numbers with this bit set. */
#define X32_BIT 0x40000000U

#define I386_SOCKETCALL 102
#define I386_SOCKET 359

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field)) /* the lower 32 bits */
#define END(action) BPF_STMT(BPF_RET | BPF_K, action)
/* Skips the next `count` instructions unless the loaded value is `value`. */
#define IF(value, count) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count)

#define ALLOW SECCOMP_RET_ALLOW
#define FAIL(error) (SECCOMP_RET_ERRNO | (error))

/* socketcall(2) of i386 may make no socket: its family is behind a pointer, and C libraries prefer socket(2). */
bool deny_calls(int denied) {
  if (denied == 0) return true;
  const unsigned vsock = denied & DENY_VSOCK ? FAIL(EPERM) : ALLOW;
  const unsigned io_uring = denied & DENY_IO_URING ? FAIL(ENOSYS) : ALLOW;
  struct sock_filter filter[] = {
      LOAD(arch),
      IF(AUDIT_ARCH_X86_64, 10),
      LOAD(nr),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, ~X32_BIT),
      IF(SYS_io_uring_setup, 1),
      END(io_uring),
      IF(SYS_socket, 4),
      LOAD(args[0]),
      IF(AF_VSOCK, 1),
      END(vsock),
      END(ALLOW),
      END(ALLOW),
      LOAD(nr),
      IF(SYS_io_uring_setup, 1), /* the same number */
      END(io_uring),
      IF(I386_SOCKETCALL, 4),
      LOAD(args[0]),
      IF(SYS_SOCKET, 1),
      END(vsock),
      END(ALLOW),
      IF(I386_SOCKET, 3),
      LOAD(args[0]),
      IF(AF_VSOCK, 1),
      END(vsock),
      END(ALLOW),
  };
  struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) == 0;
}
