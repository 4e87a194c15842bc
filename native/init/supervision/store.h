#pragma once

#include "../channel/record.h"

/* More are refused. */
#define STORE_CAPACITY 8192

/*
 * Descriptors that an agent has passed to vminit under a name. They stay open until an agent removes them, and every
 * later agent inherits them. Zero-initialised.
 */
struct store {
  struct {
    char name[RECORD_NAME_BYTES];
    int fd; /* close-on-exec */
  } entries[STORE_CAPACITY];
  unsigned count;
};

/*
 * Stores `fd` under `name`, whose bytes may be any. Returns 0; or an errno, and the caller still owns `fd`: EINVAL (not a
 * name, or no descriptor), EEXIST or ENOSPC.
 */
int store_put(struct store *store, const char name[RECORD_NAME_BYTES], int fd);

/* Closes the descriptor under `name`, whose bytes may be any. Returns 0, EINVAL or ENOENT. */
int store_remove(struct store *store, const char name[RECORD_NAME_BYTES]);
