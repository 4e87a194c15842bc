#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kept-exits.h"
#include "record.h"
#include "ring.h"

/* Records that wait for room in the socket: exits, and answers to commands behind them. */
#define OUTGOING_RECORDS 64

/*
 * The socket between vminit and the running agent, and what is to be sent over it. What an agent has not acknowledged when
 * it dies is sent again to the next agent.
 */
struct channel {
  struct ring ring;
  struct kept_exits kept;
  int fd;         /* vminit's end, -1 when there is no agent */
  int agent_fd;   /* the agent's end; kept open, because the end of the agent is noticed when it is reaped */
  uint64_t exits; /* sequence number of the last exit */
  bool hung_up;   /* the agent shut its end down, which poll(2) would report again and again */
  bool draining;  /* the agent is dead: answers are dropped */
  struct record incoming;
  size_t incoming_length;
  int incoming_fd; /* the descriptor that was passed with the incoming bytes, or -1 */
  struct record outgoing[OUTGOING_RECORDS];
  size_t outgoing_count;
  size_t outgoing_sent; /* bytes */
  int shutdown_signal;  /* 0 until a shutdown is requested */
  uint64_t backlog_end; /* the ring's records before this number were pushed before the running agent started */
  bool backlog_told;    /* the agent was sent RECORD_BACKLOG_END */
  bool displaced_told;  /* the agent was told of exits that were sent to a previous agent and are gone */
  bool shutdown_told;   /* the agent was sent RECORD_SHUTDOWN */
  bool too_many_logged; /* that no more exits can be registered */
};

/* Initialises a zeroed channel that has no agent yet. */
void channel_prepare(struct channel *channel);

/* Opens the socket for a new agent. Returns false with errno set. */
bool channel_open(struct channel *channel);

/* The agent is dead: from now on its last commands can be received whatever they are answered. */
void channel_drain(struct channel *channel);

/* Closes the socket of an agent that died. */
void channel_close(struct channel *channel);

/* Takes the exit of a process, which is kept if it is registered, or else numbered and queued. */
void channel_publish_exit(struct channel *channel, const struct record *record);

/* Has RECORD_SHUTDOWN sent. */
void channel_publish_shutdown(struct channel *channel, int signal);

/* Registers a process, whose exit may have been queued already. */
void channel_keep_exit(struct channel *channel, int32_t pid);

/* Drops the registration of a process. Its exit, if the agent was not sent it, is queued like any other. */
void channel_forget_exit(struct channel *channel, int32_t pid);

/* Answers RECORD_STORE or RECORD_UNSTORE of this name. */
void channel_answer(struct channel *channel, const char name[RECORD_NAME_BYTES], int result);

/* Sends as many queued bytes as the socket takes without blocking. */
void channel_flush(struct channel *channel);

/* The poll(2) events to wait for after a flush, or 0. */
short channel_events(const struct channel *channel);

/*
 * Receives one whole record from the agent. Returns false when there is none yet, or no room for an answer. `*passed`
 * becomes the descriptor that came with it, which the caller owns, or -1. Further descriptors are closed.
 */
bool channel_receive(struct channel *channel, struct record *record, int *passed);
