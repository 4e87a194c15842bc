#pragma once

#include <stdint.h>

#define RESTART_LIMIT 5
#define RESTART_WINDOW_MS 60000

/* The last restarts of an agent that never served. Zero-initialised. */
struct restart_policy {
  int64_t restarted_ms[RESTART_LIMIT]; /* oldest first */
  unsigned count;
};

/*
 * Returns the delay in milliseconds before an agent that died at `now_ms` is restarted, and records the restart. The
 * delay is 0, 100, 200, 400, … after 0, 1, 2, 3, … restarts in the last RESTART_WINDOW_MS. Returns -1 when there were
 * RESTART_LIMIT of them.
 */
int64_t restart_delay_ms(struct restart_policy *policy, int64_t now_ms);

/* Forgets all restarts. */
void restart_policy_reset(struct restart_policy *policy);
