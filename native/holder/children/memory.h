#pragma once

#include <stdbool.h>

/*
 * Returns a memory file with the content of the file at `path`, whose holes stay holes, or -1 with errno set. It can be
 * mapped privately; no process can write to it.
 */
int memory_open(const char *path);

/* Sends the memory file to the other end of a connection, with a line. Returns false with errno set. */
bool memory_send(int socket, int memory);

/* The memory file of the holder that listens at `path`, or -1 with errno set: ENODATA when it has none. */
int memory_receive(const char *path);
