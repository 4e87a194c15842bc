#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct watch;
struct watched_fd;
TAILQ_HEAD(watch_list, watch);

/* Which descriptors are watched, by number. */
struct watch_table {
  struct watched_fd **by_fd;
  size_t capacity;
  int64_t last_id;
  /* Watches whose descriptor became ready and whose callbacks are being called. */
  struct watch_list ready;
};
