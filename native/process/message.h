#pragma once

#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Messages of unix sockets with descriptors (SCM_RIGHTS). */

/* SCM_MAX_FD of the kernel. */
#define MAX_PASSED_DESCRIPTORS 253

#define MOST_SENT_DESCRIPTORS 3

/* The receiver owns the descriptors. */
struct passed {
  size_t count;
  int fds[MAX_PASSED_DESCRIPTORS];
};

/* sendmsg(2) without waiting. `passed` is a descriptor or -1. */
ssize_t message_send(int fd, const void *bytes, size_t length, int passed);

/* The same with several descriptors, up to the first -1. */
ssize_t message_send_some(int fd, const void *bytes, size_t length, const int passed[MOST_SENT_DESCRIPTORS]);

/* Does not wait. The caller owns `*passed`, or it is -1. Returns 0 at EOF, -1 with errno: EMSGSIZE if too long. */
ssize_t message_receive(int fd, void *bytes, size_t room, int *passed);

/* The same into several buffers. */
ssize_t message_receive_parts(int fd, struct iovec *vectors, size_t count, int *passed);

/* The same as message_receive with all descriptors. `flags` are those of recvmsg(2). */
ssize_t message_receive_all(int fd, void *bytes, size_t room, struct passed *passed, int flags);
