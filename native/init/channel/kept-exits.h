#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "record.h"

#ifndef KEPT_CAPACITY
#define KEPT_CAPACITY 8192
#endif

/* Registered processes and their exits, which stay until the agent forgets them. Zero-initialised. */
struct kept_exits {
  unsigned count;
  unsigned unsent; /* exits that the running agent was not sent */
  unsigned cursor; /* where the search for the next one begins */
  int32_t pids[KEPT_CAPACITY];
  uint8_t states[KEPT_CAPACITY]; /* enum kept_state */
  struct record exits[KEPT_CAPACITY];
};

/* Returns false when there are too many. Does not change a pid that is registered. */
bool kept_exits_register(struct kept_exits *kept, int32_t pid);

/* Returns false for a pid that is not registered, or has an exit: the new one is of a later process with the pid. */
bool kept_exits_record(struct kept_exits *kept, const struct record *exit);

/* Drops a registration. Returns true with the exit in `*unsent` if the running agent was not sent it. */
bool kept_exits_forget(struct kept_exits *kept, int32_t pid, struct record *unsent);

/* Returns the next exit and counts it as sent, or NULL. Valid until the next change. */
const struct record *kept_exits_take(struct kept_exits *kept);

/* Counts all exits as unsent, for the next agent. */
void kept_exits_rewind(struct kept_exits *kept);
