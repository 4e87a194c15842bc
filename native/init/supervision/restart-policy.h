#pragma once

#include <stdint.h>

#define RESTART_LIMIT 5
#define RESTART_WINDOW_MS 60000

/* The last restarts without service. Zero-initialised. */
struct restart_policy {
  int64_t restarted_ms[RESTART_LIMIT]; /* oldest first */
  unsigned count;
};

/* Records a restart. Returns its delay: 0, 100, 200, 400 … ms, or -1 after RESTART_LIMIT in RESTART_WINDOW_MS. */
int64_t restart_delay_ms(struct restart_policy *policy, int64_t now_ms);

void restart_policy_reset(struct restart_policy *policy);
