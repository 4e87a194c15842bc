#pragma once

#include <stdint.h>

#define RESTART_LIMIT 5
#define RESTART_WINDOW_MS 60000

/* When the agent was last restarted. Zeroed: never. */
struct restart_policy {
  int64_t restarted_ms[RESTART_LIMIT]; /* oldest first */
  unsigned count;
};

/*
 * The agent died at `now_ms`: how many milliseconds to wait before it is restarted (0, 100, 200, 400, … the more
 * restarts there were lately), or -1 when it was restarted RESTART_LIMIT times in the last RESTART_WINDOW_MS.
 */
int64_t restart_delay_ms(struct restart_policy *policy, int64_t now_ms);
