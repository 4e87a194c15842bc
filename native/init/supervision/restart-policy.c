#include "restart-policy.h"

#include <string.h>

#define FIRST_DELAY_MS 100

static void remove_old_restarts(struct restart_policy *policy, int64_t now_ms) {
  unsigned old = 0;
  while (old < policy->count && now_ms - policy->restarted_ms[old] > RESTART_WINDOW_MS) old++;
  policy->count -= old;
  memmove(policy->restarted_ms, policy->restarted_ms + old, policy->count * sizeof policy->restarted_ms[0]);
}

int64_t restart_delay_ms(struct restart_policy *policy, int64_t now_ms) {
  remove_old_restarts(policy, now_ms);
  if (policy->count == RESTART_LIMIT) return -1;
  int64_t delay = policy->count == 0 ? 0 : FIRST_DELAY_MS << (policy->count - 1);
  policy->restarted_ms[policy->count++] = now_ms;
  return delay;
}

void restart_policy_reset(struct restart_policy *policy) {
  policy->count = 0;
}
