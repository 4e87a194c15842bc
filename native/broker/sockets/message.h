#pragma once

#include <stddef.h>
#include <sys/types.h>

/* Messages of SOCK_SEQPACKET sockets, which carry a descriptor or none. Nothing here waits. */

/* Sends a message with the descriptor `passed`, or with none when it is -1. As sendmsg(2). */
ssize_t message_send(int fd, const void *bytes, size_t length, int passed);

/*
 * Receives a message of at most `room` bytes. `*passed` becomes its descriptor, which the caller owns, or -1; further ones
 * are closed. Returns 0 at the end, -1 with errno, EMSGSIZE for a longer message.
 */
ssize_t message_receive(int fd, void *bytes, size_t room, int *passed);
