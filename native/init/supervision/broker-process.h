#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* The connection broker (native/broker) as a child process. */
struct broker_process {
  pid_t pid; /* 0 when none runs */
  int fd;    /* the socket to it, or -1 */
};

/* Starts the broker, with the same program as this one. Returns false with errno set. */
bool broker_process_start(struct broker_process *broker);

/* The broker has ended: closes the socket to it. */
void broker_process_ended(struct broker_process *broker);

/* Tells the broker of an agent, and gives it its end of the control socket. Returns false with errno set. */
bool broker_process_announce(const struct broker_process *broker, pid_t agent, int control_fd);

/*
 * Receives the broker's messages. Returns whether it says that `agent` hangs. A broker that has closed its socket, or sends
 * what it must not, is killed.
 */
bool broker_process_reports_hung(struct broker_process *broker, pid_t agent);
