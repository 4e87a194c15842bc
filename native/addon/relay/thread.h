#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "stream.h"

struct relay_thread;
struct relayed;
TAILQ_HEAD(relayed_list, relayed);

struct side {
  struct relayed *relayed;
  bool is_target;
  bool is_armed;
  uint32_t events;
};

/* While a stream is on the thread, its owner may use only `owned`, `tail` and `id`. */
struct relayed {
  LIST_ENTRY(relayed) owned;
  struct tail *tail;
  int64_t id;
  TAILQ_ENTRY(relayed) entry;
  struct stream stream;
  struct side source_side;
  struct side target_side;
  enum stream_state state;
  bool target_rdhup_seen; /* epoll would repeat EPOLLRDHUP */
  void *owner_data;
  void *owner_detached; /* of the owner only */
};

/* `on_ended` runs on the thread when ended or detached streams can be taken. Returns NULL with errno set. */
struct relay_thread *relay_thread_start(void (*on_ended)(void *), void *context);

/* Hands over a stream whose `id`, `stream` and `owner_data` are set. */
void relay_thread_add(struct relay_thread *thread, struct relayed *relayed);

/* Ends the stream as after EOF once the bytes that its source holds are moved. */
void relay_thread_drain(struct relay_thread *thread, int64_t id);

void relay_thread_cancel(struct relay_thread *thread, int64_t id);

/* Closes the connection of a stream between two bytes. The stream waits for another. */
void relay_thread_detach(struct relay_thread *thread, int64_t id);

/* Owns the connection, and closes it when the stream has ended or has one. */
void relay_thread_attach(struct relay_thread *thread, int64_t id, int connection);

/* Returns the id of a stream that has lost its connection since it was asked for, or 0. */
int64_t relay_thread_take_detached(struct relay_thread *thread);

/* Returns an ended stream, whose descriptors are closed, or NULL. */
struct relayed *relay_thread_take_ended(struct relay_thread *thread);

/* Ends all streams and joins the thread. The streams can be taken afterwards. */
void relay_thread_stop(struct relay_thread *thread);

uint64_t relay_thread_moved_bytes(const struct relay_thread *thread);

void relay_thread_free(struct relay_thread *thread);
