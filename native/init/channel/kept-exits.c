#include "kept-exits.h"

#include <stddef.h>

enum kept_state { RUNNING, UNSENT, SENT };

/* Returns the index of a pid, or `count`. The pids are in one dense array, because a flood of exits searches often. */
static unsigned find(const struct kept_exits *kept, int32_t pid) {
  unsigned index = 0;
  while (index < kept->count && kept->pids[index] != pid) index++;
  return index;
}

bool kept_exits_register(struct kept_exits *kept, int32_t pid) {
  if (find(kept, pid) < kept->count) return true;
  if (kept->count == KEPT_CAPACITY) return false;
  kept->pids[kept->count] = pid;
  kept->states[kept->count] = RUNNING;
  kept->count++;
  return true;
}

bool kept_exits_record(struct kept_exits *kept, const struct record *exit) {
  unsigned index = find(kept, exit->pid);
  if (index == kept->count || kept->states[index] != RUNNING) return false;
  kept->exits[index] = *exit;
  kept->exits[index].sequence = 0;
  kept->states[index] = UNSENT;
  kept->unsent++;
  return true;
}

bool kept_exits_forget(struct kept_exits *kept, int32_t pid, struct record *unsent) {
  unsigned index = find(kept, pid);
  if (index == kept->count) return false;
  bool is_unsent = kept->states[index] == UNSENT;
  if (is_unsent) {
    kept->unsent--;
    *unsent = kept->exits[index];
  }
  unsigned last = --kept->count;
  kept->pids[index] = kept->pids[last];
  kept->states[index] = kept->states[last];
  kept->exits[index] = kept->exits[last];
  return is_unsent;
}

const struct record *kept_exits_take(struct kept_exits *kept) {
  if (kept->unsent == 0) return NULL;
  do kept->cursor = kept->cursor + 1 < kept->count ? kept->cursor + 1 : 0;
  while (kept->states[kept->cursor] != UNSENT);
  kept->states[kept->cursor] = SENT;
  kept->unsent--;
  return &kept->exits[kept->cursor];
}

void kept_exits_rewind(struct kept_exits *kept) {
  for (unsigned index = 0; index < kept->count; index++) {
    if (kept->states[index] != SENT) continue;
    kept->states[index] = UNSENT;
    kept->unsent++;
  }
}
