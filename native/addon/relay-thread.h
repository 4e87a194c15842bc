#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "relay-stream.h"

struct relay_thread;
struct relayed;
TAILQ_HEAD(relayed_list, relayed);

/* One side of a stream, as epoll names it. */
struct side {
  struct relayed *relayed;
  bool is_target;
  bool is_armed;
  uint32_t events; /* that it is armed for */
};

/* A stream on the thread. The thread's alone between relay_thread_add and relay_thread_take_ended. */
struct relayed {
  TAILQ_ENTRY(relayed) entry;
  int64_t id;
  struct stream stream;
  struct side source_side;
  struct side target_side;
  enum stream_state state;
  bool peer_sends_no_more; /* of the target: it was reported, and says nothing new */
  void *owner_data;
};

/* `on_ended` is called on the thread when streams can be taken. NULL with errno when it cannot be started. */
struct relay_thread *relay_thread_start(void (*on_ended)(void *), void *context);
/* Hands a stream over; its fields up to `stream`, and `owner_data`, are set. */
void relay_thread_add(struct relay_thread *thread, struct relayed *relayed);
/* Has the stream of this id end as after EOF once what its source holds by then is through. */
void relay_thread_drain(struct relay_thread *thread, int64_t id);
/* Ends the stream of this id with ECANCELED if it has not ended. */
void relay_thread_cancel(struct relay_thread *thread, int64_t id);
/* A stream that has ended, its descriptors closed; NULL when there is none. */
struct relayed *relay_thread_take_ended(struct relay_thread *thread);
/* Ends all streams and waits for the thread: then each can be taken. */
void relay_thread_stop(struct relay_thread *thread);
void relay_thread_free(struct relay_thread *thread);
