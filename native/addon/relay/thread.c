/*
 * The thread that moves the bytes of all streams. epoll reports an event only while a stream waits for it: a stream
 * with a slow reader uses no CPU and delays no other. An eventfd announces the queued commands.
 */
#define _GNU_SOURCE
#include "thread.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "kept.h"

#define EVENTS_PER_WAIT 64

struct command {
  STAILQ_ENTRY(command) entry;
  int64_t id;
  int connection; /* to attach; otherwise -1 */
  void (*execute)(struct relay_thread *, struct relayed *, int connection);
};
STAILQ_HEAD(command_list, command);

struct relay_thread {
  pthread_t thread;
  int epoll;
  int wakeup; /* eventfd; its epoll data is NULL */
  void (*on_ended)(void *);
  void *context;

  pthread_mutex_t lock; /* guards the next five */
  struct relayed_list added;
  struct command_list commands;
  struct relayed_list ended;
  struct command_list detached; /* only their ids */
  bool stopping;

  _Atomic uint64_t moved_bytes; /* of all streams; only the thread writes it */

  /* Used by the thread only. */
  struct relayed_list running;
  struct relayed_list ending;
};

/* A side without its connection stays as it is: a new connection begins unarmed. */
static void arm(struct relay_thread *thread, int fd, uint32_t events, struct side *side) {
  if (fd == -1 || (side->is_armed && side->events == events)) return;
  side->is_armed = true;
  side->events = events;
  struct epoll_event event = {.events = events | EPOLLONESHOT, .data.ptr = side};
  epoll_ctl(thread->epoll, EPOLL_CTL_MOD, fd, &event);
}

/* Announces by `on_ended` that the stream waits for another connection. */
static void detach_now(struct relay_thread *thread, struct relayed *relayed) {
  struct stream *stream = &relayed->stream;
  struct command *notice = calloc(1, sizeof *notice);
  if (notice == NULL) abort();
  epoll_ctl(thread->epoll, EPOLL_CTL_DEL, stream->is_input ? stream->source : stream->target, NULL);
  stream_detach(stream);
  *(stream->is_input ? &relayed->source_side : &relayed->target_side) =
      (struct side){.relayed = relayed, .is_target = !stream->is_input};
  relayed->target_rdhup_seen = false;
  notice->id = relayed->id;
  pthread_mutex_lock(&thread->lock);
  STAILQ_INSERT_TAIL(&thread->detached, notice, entry);
  pthread_mutex_unlock(&thread->lock);
  thread->on_ended(thread->context);
}

static void move(struct relay_thread *thread, struct relayed *relayed);

/* The stream is freed only after this batch of events, which may still point to it. */
static void end(struct relay_thread *thread, struct relayed *relayed) {
  if (stream_lost_device(&relayed->stream)) {
    detach_now(thread, relayed);
    move(thread, relayed);
    return;
  }
  /* close(2) keeps the registration while a duplicate of the descriptor exists (man 7 epoll). */
  epoll_ctl(thread->epoll, EPOLL_CTL_DEL, relayed->stream.source, NULL);
  epoll_ctl(thread->epoll, EPOLL_CTL_DEL, relayed->stream.target, NULL);
  stream_close(&relayed->stream);
  relayed->state = STREAM_ENDED;
  TAILQ_REMOVE(&thread->running, relayed, entry);
  TAILQ_INSERT_TAIL(&thread->ending, relayed, entry);
}

static void move(struct relay_thread *thread, struct relayed *relayed) {
  struct stream *stream = &relayed->stream;
  uint64_t before = stream->moved_bytes;
  relayed->state = stream_move(stream);
  atomic_fetch_add_explicit(&thread->moved_bytes, stream->moved_bytes - before, memory_order_relaxed);
  /* A lost reader raises EPOLLHUP or EPOLLERR, which epoll always reports. A closed vsock may raise only EPOLLRDHUP. */
  uint32_t closing = relayed->target_rdhup_seen ? 0 : EPOLLRDHUP;
  switch (relayed->state) {
    case STREAM_WAITS_FOR_SOURCE:
      arm(thread, stream->source, EPOLLIN, &relayed->source_side);
      arm(thread, stream->target, closing, &relayed->target_side);
      break;
    case STREAM_WAITS_FOR_TARGET:
    case STREAM_HAS_MORE:
      if (stream->target == -1)
        arm(thread, stream->source, EPOLLIN, &relayed->source_side);
      else
        arm(thread, stream->target, EPOLLOUT | closing, &relayed->target_side);
      break;
    case STREAM_WAITS_FOR_EITHER:
      if (stream->is_stopping && kept_is_settled(stream)) {
        detach_now(thread, relayed);
        break;
      }
      if (stream_source_events(stream) != 0)
        arm(thread, stream->source, stream_source_events(stream), &relayed->source_side);
      arm(thread, stream->target, stream_target_events(stream) | closing, &relayed->target_side);
      break;
    case STREAM_WAITS_FOR_CONNECTION:
      arm(thread, stream->target, closing, &relayed->target_side);
      break;
    case STREAM_ENDED:
      end(thread, relayed);
      break;
  }
}

/* EPOLLRDHUP alone is no proof: the peer may have shut down its own direction only. */
static bool reader_is_gone(struct relayed *relayed, uint32_t events) {
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) return true;
  if ((events & EPOLLRDHUP) == 0) return false;
  relayed->target_rdhup_seen = true;
  return !stream_has_reader(&relayed->stream);
}

static void on_event(struct relay_thread *thread, struct side *side, uint32_t events) {
  struct relayed *relayed = side->relayed;
  side->is_armed = false;
  if (relayed->state == STREAM_ENDED) return;
  /* An event of the same batch has shown that the connection is lost. */
  if ((side->is_target ? relayed->stream.target : relayed->stream.source) == -1) return;
  if (side->is_target && reader_is_gone(relayed, events)) {
    relayed->stream.error = EPIPE;
    end(thread, relayed);
    return;
  }
  move(thread, relayed);
}

static int watch_side(struct relay_thread *thread, int fd, struct side *side) {
  if (fd == -1) return 0;
  struct epoll_event event = {.events = EPOLLONESHOT, .data.ptr = side};
  return epoll_ctl(thread->epoll, EPOLL_CTL_ADD, fd, &event);
}

static void begin(struct relay_thread *thread, struct relayed *relayed) {
  relayed->source_side = (struct side){.relayed = relayed};
  relayed->target_side = (struct side){.relayed = relayed, .is_target = true};
  TAILQ_INSERT_TAIL(&thread->running, relayed, entry);
  if (watch_side(thread, relayed->stream.source, &relayed->source_side) == 0 &&
      watch_side(thread, relayed->stream.target, &relayed->target_side) == 0) {
    move(thread, relayed);
    return;
  }
  relayed->stream.error = errno;
  end(thread, relayed);
}

static void cancel(struct relay_thread *thread, struct relayed *relayed, int connection) {
  (void)connection;
  relayed->stream.error = ECANCELED;
  end(thread, relayed);
}

static void detach(struct relay_thread *thread, struct relayed *relayed, int connection) {
  (void)connection;
  if (relayed->stream.source == -1 || relayed->stream.target == -1) return;
  if (stream_stop(&relayed->stream)) detach_now(thread, relayed);
  move(thread, relayed);
}

static void attach(struct relay_thread *thread, struct relayed *relayed, int connection) {
  struct stream *stream = &relayed->stream;
  bool is_detached = stream->source == -1 || stream->target == -1;
  if (!is_detached || stream_attach(stream, connection) != 0)
    close(connection);
  else if (watch_side(thread, connection, stream->is_input ? &relayed->source_side : &relayed->target_side) != 0)
    detach_now(thread, relayed);
  else
    move(thread, relayed);
}

static void drain(struct relay_thread *thread, struct relayed *relayed, int connection) {
  (void)connection;
  if (relayed->stream.is_draining) return;
  stream_drain(&relayed->stream);
  move(thread, relayed);
}

static void handle_command(struct relay_thread *thread, const struct command *command) {
  struct relayed *relayed;
  TAILQ_FOREACH(relayed, &thread->running, entry) {
    if (relayed->id != command->id) continue;
    command->execute(thread, relayed, command->connection);
    return;
  }
  if (command->connection != -1) close(command->connection);
}

static bool handle_commands(struct relay_thread *thread) {
  uint64_t count;
  struct relayed_list added;
  struct command_list commands;
  TAILQ_INIT(&added);
  STAILQ_INIT(&commands);
  if (read(thread->wakeup, &count, sizeof count) == -1 && errno != EAGAIN) return false;
  pthread_mutex_lock(&thread->lock);
  TAILQ_CONCAT(&added, &thread->added, entry);
  STAILQ_CONCAT(&commands, &thread->commands);
  bool goes_on = !thread->stopping;
  pthread_mutex_unlock(&thread->lock);

  struct relayed *relayed;
  while ((relayed = TAILQ_FIRST(&added)) != NULL) {
    TAILQ_REMOVE(&added, relayed, entry);
    begin(thread, relayed);
  }
  struct command *command;
  while ((command = STAILQ_FIRST(&commands)) != NULL) {
    STAILQ_REMOVE_HEAD(&commands, entry);
    handle_command(thread, command);
    free(command);
  }
  return goes_on;
}

static void publish_ended(struct relay_thread *thread) {
  if (TAILQ_EMPTY(&thread->ending)) return;
  pthread_mutex_lock(&thread->lock);
  TAILQ_CONCAT(&thread->ended, &thread->ending, entry);
  pthread_mutex_unlock(&thread->lock);
  thread->on_ended(thread->context);
}

static void end_all(struct relay_thread *thread) {
  struct relayed *relayed;
  while ((relayed = TAILQ_FIRST(&thread->running)) != NULL) {
    relayed->stream.error = ECANCELED;
    end(thread, relayed);
  }
}

static void *run(void *data) {
  struct relay_thread *thread = data;
  struct epoll_event events[EVENTS_PER_WAIT];
  for (bool goes_on = true; goes_on;) {
    int count = epoll_wait(thread->epoll, events, EVENTS_PER_WAIT, -1);
    bool woken = false;
    for (int index = 0; index < count; index++) {
      struct side *side = events[index].data.ptr;
      if (side == NULL)
        woken = true;
      else
        on_event(thread, side, events[index].events);
    }
    /* After the events, because a new stream may reuse memory to which an event of this batch points. */
    if (woken) goes_on = handle_commands(thread);
    publish_ended(thread);
  }
  end_all(thread);
  publish_ended(thread);
  return NULL;
}

static void wake(struct relay_thread *thread) {
  const uint64_t one = 1;
  ssize_t written = write(thread->wakeup, &one, sizeof one);
  /* The write fails only when the counter is full: the thread is awake then. */
  (void)written;
}

static int start_thread(struct relay_thread *thread) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
  if (epoll_ctl(thread->epoll, EPOLL_CTL_ADD, thread->wakeup, &event) != 0) return errno;
  /* Blocks all signals: Node's own threads handle them. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&thread->thread, NULL, run, thread);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error;
}

struct relay_thread *relay_thread_start(void (*on_ended)(void *), void *context) {
  struct relay_thread *thread = calloc(1, sizeof *thread);
  if (thread == NULL) return NULL;
  thread->epoll = epoll_create1(EPOLL_CLOEXEC);
  thread->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  thread->on_ended = on_ended;
  thread->context = context;
  pthread_mutex_init(&thread->lock, NULL);
  TAILQ_INIT(&thread->added);
  STAILQ_INIT(&thread->commands);
  STAILQ_INIT(&thread->detached);
  TAILQ_INIT(&thread->ended);
  TAILQ_INIT(&thread->running);
  TAILQ_INIT(&thread->ending);
  int error = start_thread(thread);
  if (error == 0) return thread;
  relay_thread_free(thread);
  errno = error;
  return NULL;
}

void relay_thread_add(struct relay_thread *thread, struct relayed *relayed) {
  pthread_mutex_lock(&thread->lock);
  TAILQ_INSERT_TAIL(&thread->added, relayed, entry);
  pthread_mutex_unlock(&thread->lock);
  wake(thread);
}

static void queue_command(struct relay_thread *thread, int64_t id, int connection,
                          void (*execute)(struct relay_thread *, struct relayed *, int)) {
  struct command *command = malloc(sizeof *command);
  if (command == NULL) abort();
  command->id = id;
  command->connection = connection;
  command->execute = execute;
  pthread_mutex_lock(&thread->lock);
  STAILQ_INSERT_TAIL(&thread->commands, command, entry);
  pthread_mutex_unlock(&thread->lock);
  wake(thread);
}

void relay_thread_drain(struct relay_thread *thread, int64_t id) {
  queue_command(thread, id, -1, drain);
}

void relay_thread_cancel(struct relay_thread *thread, int64_t id) {
  queue_command(thread, id, -1, cancel);
}

void relay_thread_detach(struct relay_thread *thread, int64_t id) {
  queue_command(thread, id, -1, detach);
}

void relay_thread_attach(struct relay_thread *thread, int64_t id, int connection) {
  queue_command(thread, id, connection, attach);
}

int64_t relay_thread_take_detached(struct relay_thread *thread) {
  pthread_mutex_lock(&thread->lock);
  struct command *notice = STAILQ_FIRST(&thread->detached);
  if (notice != NULL) STAILQ_REMOVE_HEAD(&thread->detached, entry);
  pthread_mutex_unlock(&thread->lock);
  int64_t id = notice == NULL ? 0 : notice->id;
  free(notice);
  return id;
}

struct relayed *relay_thread_take_ended(struct relay_thread *thread) {
  pthread_mutex_lock(&thread->lock);
  struct relayed *relayed = TAILQ_FIRST(&thread->ended);
  if (relayed != NULL) TAILQ_REMOVE(&thread->ended, relayed, entry);
  pthread_mutex_unlock(&thread->lock);
  return relayed;
}

void relay_thread_stop(struct relay_thread *thread) {
  pthread_mutex_lock(&thread->lock);
  thread->stopping = true;
  pthread_mutex_unlock(&thread->lock);
  wake(thread);
  pthread_join(thread->thread, NULL);
}

uint64_t relay_thread_moved_bytes(const struct relay_thread *thread) {
  return atomic_load_explicit(&thread->moved_bytes, memory_order_relaxed);
}

void relay_thread_free(struct relay_thread *thread) {
  close(thread->epoll);
  close(thread->wakeup);
  pthread_mutex_destroy(&thread->lock);
  free(thread);
}
