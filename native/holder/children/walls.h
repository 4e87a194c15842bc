#pragma once

#include <stddef.h>

/* What a program is started with besides its arguments, and what it gives up before. All words are of the request. */
#define WALLS_USAGE \
  "want uid=N, group=N, network=none, processes=own, disk=FD:r|rw:PATH, read=FD:PATH, " \
  "map=FD:PATH, listen=FD:PATH, connect=FD:PATH, memory=FD:SOCKET, tap=FD:INTERFACE, " \
  "first-queue=FD:INTERFACE, queue=FD:INTERFACE"

/*
 * Makes the network namespace of the first program that gets one of its own, if this user can: that takes longer than all else before
 * the program.
 */
void walls_prepare(void);

/* Runs in the parent, once a program with these walls has been forked. */
void walls_used(char *const *walls, size_t count);

/* The first of `count` words that is no wall, or NULL. */
const char *walls_wrong(char *const *walls, size_t count);

/*
 * Runs in the child, before the walls are made: opens a program that its user may execute, but whose folder it may not
 * pass. Returns -1 when there is none.
 */
int walls_program(const char *name);

/*
 * Runs in the child: opens the descriptors with the holder's rights, then leaves the network, then becomes the user.
 * Returns -1, or the index of the wall that failed with errno set.
 */
int walls_make(char *const *walls, size_t count);
