/*
 * The epoll set is one uv_poll_t of Node's loop: watching a descriptor again costs one system call instead of five. A
 * descriptor has any number of one-shot watches. It stays in the set, disarmed, after the last one was ready.
 */
#define _GNU_SOURCE
#include "watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/queue.h>
#include <unistd.h>

#include "functions.h"
#include "napi/call.h"

/* Descriptors per epoll_wait(2). The next turn of the loop reports the rest. */
#define READY_AT_ONCE 64

struct watch {
  TAILQ_ENTRY(watch) entry;
  int64_t id;
  uint32_t events;
  napi_ref callback;
};
TAILQ_HEAD(watch_list, watch);

struct watched_fd {
  uint32_t armed; /* one-shot events that the set reports */
  bool is_in_set; /* wrong once other code has closed it */
  struct watch_list watches;
};

struct watch_table {
  uv_poll_t poll;
  struct addon *addon;
  int set;
  struct watched_fd **by_fd;
  size_t capacity;
  size_t pending; /* watches that are not ready: they keep the loop alive */
  int64_t last_id;
  struct watch_list ready; /* removed from their descriptor, callback not called yet */
};

bool watch_begin(struct addon *addon) {
  struct watch_table *table = calloc(1, sizeof *table);
  if (table == NULL) return false;
  table->addon = addon;
  table->set = -1;
  TAILQ_INIT(&table->ready);
  addon->watches = table;
  return true;
}

static struct watched_fd *find_watched(struct addon *addon, int fd) {
  struct watch_table *table = addon->watches;
  return fd >= 0 && (size_t)fd < table->capacity ? table->by_fd[fd] : NULL;
}

bool watch_is_pending(struct addon *addon, int fd) {
  struct watched_fd *watched = find_watched(addon, fd);
  return watched != NULL && !TAILQ_EMPTY(&watched->watches);
}

void watch_forget(struct addon *addon, int fd) {
  struct watched_fd *watched = find_watched(addon, fd);
  if (watched == NULL) return;
  addon->watches->by_fd[fd] = NULL;
  free(watched);
}

static void count_pending(struct watch_table *table, int change) {
  table->pending += change;
  if (table->pending > 0)
    uv_ref((uv_handle_t *)&table->poll);
  else
    uv_unref((uv_handle_t *)&table->poll);
}

/* Returns 0 or -1. Tries both operations, because `is_in_set` may be wrong. */
static int put_into_set(struct watch_table *table, int fd, struct watched_fd *watched, uint32_t events) {
  struct epoll_event event = {.events = events | EPOLLONESHOT, .data.fd = fd};
  int operation = watched->is_in_set ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  int result = epoll_ctl(table->set, operation, fd, &event);
  if (result != 0 && errno == ENOENT)
    result = epoll_ctl(table->set, operation = EPOLL_CTL_ADD, fd, &event);
  else if (result != 0 && errno == EEXIST)
    result = epoll_ctl(table->set, operation = EPOLL_CTL_MOD, fd, &event);
  watched->is_in_set = result == 0;
  /* Callers read or write until EAGAIN, so the descriptor must not block. */
  if (result == 0 && operation == EPOLL_CTL_ADD) ioctl(fd, FIONBIO, &(int){1});
  return result;
}

static int rearm(struct watch_table *table, int fd, struct watched_fd *watched) {
  uint32_t events = 0;
  struct watch *watch;
  TAILQ_FOREACH(watch, &watched->watches, entry) events |= watch->events;
  if (events == watched->armed) return 0;
  watched->armed = 0;
  if (events == 0) {
    /* Fails for a descriptor that was closed and so left the set. */
    epoll_ctl(table->set, EPOLL_CTL_DEL, fd, NULL);
    watched->is_in_set = false;
    return 0;
  }
  if (put_into_set(table, fd, watched, events) != 0) return -errno;
  watched->armed = events;
  return 0;
}

static void take_ready(struct watch_table *table, int fd, uint32_t events) {
  struct watched_fd *watched = find_watched(table->addon, fd);
  if (watched == NULL) return;
  watched->armed = 0;
  /* After an error or a hang-up every watch is ready: the read or write that follows reports it. */
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) events |= EPOLLIN | EPOLLOUT;
  struct watch *watch, *next;
  for (watch = TAILQ_FIRST(&watched->watches); watch != NULL; watch = next) {
    next = TAILQ_NEXT(watch, entry);
    if ((watch->events & events) == 0) continue;
    TAILQ_REMOVE(&watched->watches, watch, entry);
    TAILQ_INSERT_TAIL(&table->ready, watch, entry);
    count_pending(table, -1);
  }
  rearm(table, fd, watched);
}

static void on_ready(uv_poll_t *poll, int status, int poll_events) {
  (void)status, (void)poll_events;
  struct watch_table *table = poll->data;
  struct addon *addon = table->addon;
  struct epoll_event events[READY_AT_ONCE];
  int count = epoll_wait(table->set, events, READY_AT_ONCE, 0);
  for (int i = 0; i < count; i++) take_ready(table, events[i].data.fd, events[i].events);

  napi_handle_scope scope;
  napi_open_handle_scope(addon->env, &scope);
  /* A callback may cancel other watches of this list. */
  struct watch *watch;
  while ((watch = TAILQ_FIRST(&table->ready)) != NULL) {
    TAILQ_REMOVE(&table->ready, watch, entry);
    addon_call_back(addon, watch->callback, 0, NULL);
    free(watch);
  }
  napi_close_handle_scope(addon->env, scope);
}

static int open_set(struct watch_table *table) {
  if (table->set != -1) return 0;
  int set = epoll_create1(EPOLL_CLOEXEC);
  if (set == -1) return -errno;
  int status = uv_poll_init(table->addon->loop, &table->poll, set);
  if (status != 0) {
    close(set);
    return status;
  }
  table->set = set;
  table->poll.data = table;
  addon_handle_opened(table->addon);
  uv_unref((uv_handle_t *)&table->poll);
  return uv_poll_start(&table->poll, UV_READABLE, on_ready);
}

static bool make_room(struct watch_table *table, size_t fd) {
  if (fd < table->capacity) return true;
  size_t capacity = (fd + 64) & ~(size_t)63;
  struct watched_fd **by_fd = realloc(table->by_fd, capacity * sizeof(struct watched_fd *));
  if (by_fd == NULL) return false;
  memset(by_fd + table->capacity, 0, (capacity - table->capacity) * sizeof(struct watched_fd *));
  table->by_fd = by_fd;
  table->capacity = capacity;
  return true;
}

static int open_watched(struct watch_table *table, int fd, struct watched_fd **result) {
  *result = find_watched(table->addon, fd);
  if (*result != NULL) return 0;
  if (fd < 0) return -EBADF;
  int status = open_set(table);
  if (status != 0) return status;
  struct watched_fd *watched = make_room(table, fd) ? calloc(1, sizeof *watched) : NULL;
  if (watched == NULL) return -ENOMEM;
  TAILQ_INIT(&watched->watches);
  table->by_fd[fd] = watched;
  *result = watched;
  return 0;
}

static void delete_watch(struct addon *addon, struct watch *watch) {
  napi_delete_reference(addon->env, watch->callback);
  free(watch);
}

/* Returns the watch's id, or -errno (EPERM: the file cannot be polled). Takes ownership of the callback on success. */
static int64_t add_watch(struct watch_table *table, int fd, uint32_t events, napi_ref callback) {
  struct watched_fd *watched;
  int status = open_watched(table, fd, &watched);
  if (status != 0) return status;
  struct watch *watch = malloc(sizeof *watch);
  if (watch == NULL) return -ENOMEM;
  *watch = (struct watch){.id = ++table->last_id, .events = events, .callback = callback};
  TAILQ_INSERT_TAIL(&watched->watches, watch, entry);
  status = rearm(table, fd, watched);
  if (status != 0) {
    TAILQ_REMOVE(&watched->watches, watch, entry);
    free(watch);
    return status;
  }
  count_pending(table, 1);
  return watch->id;
}

static int64_t watch_fd(struct call *call) {
  const union argument *given = call->given;
  uint32_t events = strcmp(given[1].string, "write") == 0 ? EPOLLOUT : EPOLLIN;
  int64_t result = add_watch(addon_of(call->env)->watches, given[0].integer, events, given[2].function);
  if (result >= 0) return result;
  errno = -(int)result; /* -EPERM is -1, which means `see errno` */
  return -1;
}

static struct watch *remove_from(struct watch_list *list, int64_t id) {
  struct watch *watch;
  TAILQ_FOREACH(watch, list, entry) {
    if (watch->id != id) continue;
    TAILQ_REMOVE(list, watch, entry);
    return watch;
  }
  return NULL;
}

static int64_t cancel_watch(struct call *call) {
  struct addon *addon = addon_of(call->env);
  const int fd = call->given[0].integer;
  struct watched_fd *watched = find_watched(addon, fd);
  const int64_t id = call->given[1].integer;
  struct watch *watch = watched == NULL ? NULL : remove_from(&watched->watches, id);
  if (watch != NULL) {
    count_pending(addon->watches, -1);
    rearm(addon->watches, fd, watched);
  } else {
    watch = remove_from(&addon->watches->ready, id);
  }
  if (watch == NULL) return -ENOENT;
  delete_watch(addon, watch);
  return 0;
}

static void delete_all(struct addon *addon, struct watch_list *list) {
  struct watch *watch;
  while ((watch = TAILQ_FIRST(list)) != NULL) {
    TAILQ_REMOVE(list, watch, entry);
    delete_watch(addon, watch);
  }
}

static void on_closed(uv_handle_t *handle) {
  struct watch_table *table = handle->data;
  struct addon *addon = table->addon;
  free(table);
  addon_handle_closed(addon);
}

void watch_end(struct addon *addon) {
  struct watch_table *table = addon->watches;
  delete_all(addon, &table->ready);
  for (size_t fd = 0; fd < table->capacity; fd++) {
    if (table->by_fd[fd] == NULL) continue;
    delete_all(addon, &table->by_fd[fd]->watches);
    free(table->by_fd[fd]);
  }
  free(table->by_fd);
  addon->watches = NULL;
  if (table->set == -1) {
    free(table);
    return;
  }
  uv_close((uv_handle_t *)&table->poll, on_closed); /* stops the polling at once */
  close(table->set);
}

const struct addon_function watch_functions[] = {
    {"watchFd", "isf", watch_fd, false},
    {"cancelWatch", "ii", cancel_watch, false},
    {0},
};
