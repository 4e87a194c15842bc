#include "store.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* The name becomes a part of the agent's arguments. */
static bool is_name(const char name[RECORD_NAME_BYTES]) {
  size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");
  return length > 0 && name[length] == '\0';
}

const char *store_put(struct store *store, const char name[RECORD_NAME_BYTES], int fd) {
  if (memchr(name, '\0', RECORD_NAME_BYTES) == NULL || !is_name(name)) return "its name is not one";
  if (fd < 0) return "there is none";
  for (unsigned i = 0; i < store->count; i++)
    if (strcmp(store->entries[i].name, name) == 0) return "its name is in use";
  if (store->count == STORE_CAPACITY) return "the store is full";
  strcpy(store->entries[store->count].name, name);
  store->entries[store->count].fd = fd;
  store->count++;
  return NULL;
}
