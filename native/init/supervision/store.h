#pragma once

#include "../channel/record.h"

/* More are refused. */
#define STORE_CAPACITY 16

/*
 * Descriptors that an agent has passed to vminit under a name. They stay open as long as vminit runs, and every later
 * agent inherits them. Zero-initialised.
 */
struct store {
  struct {
    char name[RECORD_NAME_BYTES];
    int fd; /* close-on-exec */
  } entries[STORE_CAPACITY];
  unsigned count;
};

/* Stores `fd` under `name`, whose bytes may be any. Returns NULL, or why not; the caller then still owns `fd`. */
const char *store_put(struct store *store, const char name[RECORD_NAME_BYTES], int fd);
