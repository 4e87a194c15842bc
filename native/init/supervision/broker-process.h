#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The connection broker (native/broker) as a child process. */
struct broker_process {
  pid_t pid; /* 0 when none runs */
  int fd;    /* the socket to it, or -1 */
  /* The ping that it has to answer. */
  uint32_t pings;     /* the number of the last one */
  int64_t look_at_ms; /* when vminit looks whether it is answered, or 0: none is out */
  int64_t look_began_ms;
  int64_t waited_ms; /* of the time in which vminit itself ran on time */
};

/* Starts the broker, with the same program as this one. Returns false with errno set. */
bool broker_process_start(struct broker_process *broker);

/* The broker has ended: closes the socket to it. */
void broker_process_ended(struct broker_process *broker);

/* Tells the broker of an agent, and gives it its end of the control socket. Returns false with errno set. */
bool broker_process_announce(const struct broker_process *broker, pid_t agent, int control_fd);

/* Asks the broker for a sign of life, unless a ping is out already. */
void broker_process_ping(struct broker_process *broker);

/* Before the power-off: waits until the clients have taken what was sent to them, or for `timeout_ms`. */
void broker_process_leave(const struct broker_process *broker, int timeout_ms);

/*
 * To be called at `look_at_ms`. Returns whether the broker hangs: the ping was not answered for so long that it never will
 * be, and the broker must be killed.
 */
bool broker_process_hangs(struct broker_process *broker, int64_t now_ms);

/*
 * Receives the broker's messages. Returns whether it says that `agent` hangs. A broker that has closed its socket, or sends
 * what it must not, is killed.
 */
bool broker_process_reports_hung(struct broker_process *broker, pid_t agent);
