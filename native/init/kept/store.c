#include "store.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* A name must be one word of the list that the next agent gets. */
bool store_is_name(const char name[RECORD_NAME_BYTES]) {
  if (memchr(name, '\0', RECORD_NAME_BYTES) == NULL) return false;
  size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");
  return length > 0 && name[length] == '\0';
}

static unsigned find(const struct store *store, const char *name) {
  unsigned index = 0;
  while (index < store->count && strcmp(store->entries[index].name, name) != 0) index++;
  return index;
}

int store_put(struct store *store, const char name[RECORD_NAME_BYTES], int fd) {
  if (!store_is_name(name) || fd < 0) return EINVAL;
  if (find(store, name) < store->count) return EEXIST;
  if (store->count == STORE_CAPACITY) return ENOSPC;
  strcpy(store->entries[store->count].name, name);
  store->entries[store->count].fd = fd;
  store->count++;
  return 0;
}

int store_remove(struct store *store, const char name[RECORD_NAME_BYTES]) {
  if (!store_is_name(name)) return EINVAL;
  unsigned index = find(store, name);
  if (index == store->count) return ENOENT;
  close(store->entries[index].fd);
  store->entries[index] = store->entries[--store->count];
  return 0;
}
