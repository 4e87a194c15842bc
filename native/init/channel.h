#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "record.h"
#include "ring.h"

/*
 * The socket between vminit and the agent that is running. Records stay in the ring until the agent has read
 * them from the socket, so those that an agent leaves unread when it dies go to its successor.
 */
struct channel {
  struct ring ring;
  int fd;             /* vminit's end, -1 when there is no agent */
  int agent_fd;       /* the agent's end: kept open, because only it tells how much is still unread */
  uint64_t sent;      /* offset in the ring up to which bytes were given to the socket */
  uint64_t exits;     /* sequence number of the last exit */
  bool hung_up;       /* the agent shut its side: polling would report that for ever */
  struct record incoming;
  size_t incoming_length;
};

/* Prepares a zeroed channel that has no agent yet. */
void channel_prepare(struct channel *channel);

/* Makes the socket for a new agent. Returns false with errno set. */
bool channel_open(struct channel *channel);

/* Ends the socket of an agent that died. What it did not read is sent again to the next one. */
void channel_close(struct channel *channel);

/* Numbers an exit record and queues it. */
void channel_publish_exit(struct channel *channel, struct record *record);

/* Queues RECORD_SHUTDOWN. May be called once in a life of vminit. */
void channel_publish_shutdown(struct channel *channel, int signal);

/* Sends as much of the queue as the socket takes without blocking. */
void channel_flush(struct channel *channel);

/* The poll events to wait for; 0 when there is nothing to wait for. */
short channel_events(const struct channel *channel);

/* Takes one whole record from the agent. Returns false when there is none yet. Passed descriptors are closed. */
bool channel_receive(struct channel *channel, struct record *record);
