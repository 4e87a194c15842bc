#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct broker_process {
  pid_t pid; /* 0: none runs */
  int fd;
  uint32_t pings;
  int64_t look_at_ms; /* next check for the answer; 0: no ping is out */
  int64_t look_began_ms;
  int64_t waited_ms; /* counts only checks on time */
};

/* Runs the same program as this process. Returns false with errno set. */
bool broker_process_start(struct broker_process *broker);

void broker_process_ended(struct broker_process *broker);

/* Announces an agent and passes the broker's end of its control socket. Returns false with errno set. */
bool broker_process_announce(const struct broker_process *broker, pid_t agent, int control_fd);

/* Pings the broker, unless a ping is out. */
void broker_process_ping(struct broker_process *broker);

/* Waits until the clients have read everything, or for `timeout_ms`, before the power-off. */
void broker_process_leave(const struct broker_process *broker, int timeout_ms);

/* To be called at `look_at_ms`. Returns true if the broker hangs, and must be killed. */
bool broker_process_hangs(struct broker_process *broker, int64_t now_ms);

/* Returns whether the broker reports `agent` as hung. Kills a broker that breaks the protocol. */
bool broker_process_reports_hung(struct broker_process *broker, pid_t agent);
