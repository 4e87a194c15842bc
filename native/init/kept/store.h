#pragma once

#include <stdbool.h>

#include "../channel/record.h"

#define STORE_CAPACITY 8192

/* Descriptors that agents have stored by name. Every later agent inherits them. Zero-initialised. */
struct store {
  struct {
    char name[RECORD_NAME_BYTES];
    int fd; /* close-on-exec */
  } entries[STORE_CAPACITY];
  unsigned count;
};

/* `name` may be any bytes. */
bool store_is_name(const char name[RECORD_NAME_BYTES]);

/* Returns 0, or an errno: EINVAL, EEXIST, ENOSPC; the caller still owns `fd` then. `name` may be any bytes. */
int store_put(struct store *store, const char name[RECORD_NAME_BYTES], int fd);

/* Closes the descriptor. Returns 0, EINVAL or ENOENT. */
int store_remove(struct store *store, const char name[RECORD_NAME_BYTES]);
