#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "record.h"
#include "ring.h"

/*
 * The socket between vminit and the running agent. A record stays in the ring until the agent has read it from the
 * socket: what an agent has not read when it dies is sent to the next agent.
 */
struct channel {
  struct ring ring;
  int fd;         /* vminit's end, -1 when there is no agent */
  int agent_fd;   /* the agent's end; kept open, because FIONREAD on it returns how much is unread */
  uint64_t sent;  /* the ring's bytes up to this offset were written to the socket */
  uint64_t exits; /* sequence number of the last exit */
  bool hung_up;   /* the agent shut its end down, which poll(2) would report again and again */
  struct record incoming;
  size_t incoming_length;
  int incoming_fd; /* the descriptor that was passed with the incoming bytes, or -1 */
};

/* Initialises a zeroed channel that has no agent yet. */
void channel_prepare(struct channel *channel);

/* Opens the socket for a new agent. Returns false with errno set. */
bool channel_open(struct channel *channel);

/* Closes the socket of an agent that died. Records that it did not read will be sent to the next agent. */
void channel_close(struct channel *channel);

/* Numbers an exit record and queues it. */
void channel_publish_exit(struct channel *channel, struct record *record);

/* Queues RECORD_SHUTDOWN. May be called once. */
void channel_publish_shutdown(struct channel *channel, int signal);

/* Sends as many queued bytes as the socket takes without blocking. */
void channel_flush(struct channel *channel);

/* The poll(2) events to wait for, or 0. */
short channel_events(const struct channel *channel);

/*
 * Receives one whole record from the agent. Returns false when there is none yet. `*passed` becomes the descriptor that
 * came with it, which the caller owns, or -1. Further descriptors are closed.
 */
bool channel_receive(struct channel *channel, struct record *record, int *passed);
