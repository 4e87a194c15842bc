#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "record.h"

#ifndef KEPT_CAPACITY
#define KEPT_CAPACITY 8192
#endif

/*
 * The processes whose exits an agent has registered, and those exits: they stay until the agent forgets them, whatever
 * else ends. Zero-initialised.
 */
struct kept_exits {
  unsigned count;
  unsigned unsent; /* how many have an exit that the running agent was not sent */
  unsigned cursor; /* where the search for those goes on */
  int32_t pids[KEPT_CAPACITY];
  uint8_t states[KEPT_CAPACITY]; /* enum kept_state */
  struct record exits[KEPT_CAPACITY];
};

/* Registers a pid. Returns false when there are too many; one that is registered stays as it is. */
bool kept_exits_register(struct kept_exits *kept, int32_t pid);

/*
 * Takes the exit of a registered process. Returns false when none is registered, or when it has an exit: then this is
 * one of another process with the same pid.
 */
bool kept_exits_record(struct kept_exits *kept, const struct record *exit);

/* Drops a registration with its exit. Returns true when the running agent was not sent it, which `*unsent` then is. */
bool kept_exits_forget(struct kept_exits *kept, int32_t pid, struct record *unsent);

/* Returns the next exit to send, which counts as sent, or NULL. It is valid until the next change. */
const struct record *kept_exits_take(struct kept_exits *kept);

/* Begins anew with a next agent, which is to be sent all exits. */
void kept_exits_rewind(struct kept_exits *kept);
