#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../process/message.h"
#include "kept-exits.h"
#include "record.h"
#include "ring.h"

/* Records that wait for room in the socket: exits, then answers to commands. */
#define OUTGOING_RECORDS 64

/* The socket to the running agent. The next agent is sent again what this one has not acknowledged. */
struct channel {
  struct ring ring;
  struct kept_exits kept;
  int fd;         /* vminit's end; -1 without an agent */
  int agent_fd;   /* the agent's end, kept open: vminit notices the agent's end when it reaps it */
  uint64_t exits; /* sequence number of the last exit */
  bool hung_up;   /* the agent shut its end down, which poll(2) would repeat */
  bool draining;  /* the agent is dead: answers are dropped */
  struct record incoming;
  size_t incoming_length;
  struct passed incoming_fds; /* of the last message that had some, for its records in their order */
  size_t next_fd;
  struct record outgoing[OUTGOING_RECORDS];
  size_t outgoing_count;
  size_t outgoing_sent; /* bytes */
  int shutdown_signal;  /* 0: no shutdown was requested */
  uint64_t backlog_end; /* earlier records of the ring are older than the running agent */
  bool backlog_told;
  bool displaced_told; /* the agent knows how many exits the ring has displaced */
  bool shutdown_told;
  bool too_many_logged; /* logged that no more exits can be kept */
};

void channel_prepare(struct channel *channel);

/* Returns false with errno set. */
bool channel_open(struct channel *channel);

/* The agent is dead: its last commands are received, and not answered. */
void channel_drain(struct channel *channel);

void channel_close(struct channel *channel);

/* Keeps the exit if its process is registered; otherwise numbers and queues it. */
void channel_publish_exit(struct channel *channel, const struct record *record);

void channel_publish_shutdown(struct channel *channel, int signal);

void channel_keep_exit(struct channel *channel, int32_t pid);

/* Drops a registration. An exit that the agent was not sent is queued like any other. */
void channel_forget_exit(struct channel *channel, int32_t pid);

void channel_answer(struct channel *channel, enum record_kind kind, const char name[RECORD_NAME_BYTES], int result);

/* Whether there is room for an answer, or nobody to get it. */
bool channel_can_answer(const struct channel *channel);

void channel_flush(struct channel *channel);

/* The poll(2) events to wait for after a flush, or 0. */
short channel_events(const struct channel *channel);

/* Returns false without a whole record or room for an answer. The caller owns `*passed`, a descriptor or -1. */
bool channel_receive(struct channel *channel, struct record *record, int *passed);
