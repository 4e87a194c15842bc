#pragma once

#include <stddef.h>
#include <sys/types.h>

/* Messages of unix sockets, which carry descriptors (SCM_RIGHTS). */

/* SCM_MAX_FD: the most descriptors that one message can carry. */
#define MAX_PASSED_DESCRIPTORS 253

/* The descriptors of a message, which its receiver owns. */
struct passed {
  size_t count;
  int fds[MAX_PASSED_DESCRIPTORS];
};

/* Sends a message with the descriptor `passed`, or with none when it is -1. As sendmsg(2); does not wait. */
ssize_t message_send(int fd, const void *bytes, size_t length, int passed);

/*
 * Receives a message of at most `room` bytes. `*passed` becomes its descriptor, which the caller owns, or -1; further ones
 * are closed. Does not wait. Returns 0 at the end, -1 with errno, EMSGSIZE for a longer message.
 */
ssize_t message_receive(int fd, void *bytes, size_t room, int *passed);

/* The same with all descriptors of the message. `flags` are those of recvmsg(2). */
ssize_t message_receive_all(int fd, void *bytes, size_t room, struct passed *passed, int flags);
