/*
 * Readiness of descriptors on Node's own loop. Each watched descriptor has one uv_poll_t, because the loop allows no
 * more, and any number of one-shot watches. The handle is closed with the descriptor's last watch.
 */
#define _GNU_SOURCE
#include "watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "functions.h"
#include "napi/call.h"

struct watch {
  TAILQ_ENTRY(watch) entry;
  int64_t id;
  int events; /* UV_READABLE or UV_WRITABLE */
  napi_ref callback;
};
TAILQ_HEAD(watch_list, watch);

struct watched_fd {
  uv_poll_t poll;
  struct addon *addon;
  int fd;
  struct watch_list watches;
};

struct watch_table {
  struct watched_fd **by_fd;
  size_t capacity;
  int64_t last_id;
  struct watch_list ready; /* removed from their descriptor, callback not called yet */
};

bool watch_begin(struct addon *addon) {
  addon->watches = calloc(1, sizeof *addon->watches);
  if (addon->watches == NULL) return false;
  TAILQ_INIT(&addon->watches->ready);
  return true;
}

static struct watched_fd *find_watched(struct addon *addon, int fd) {
  struct watch_table *table = addon->watches;
  return fd >= 0 && (size_t)fd < table->capacity ? table->by_fd[fd] : NULL;
}

bool watch_is_pending(struct addon *addon, int fd) {
  return find_watched(addon, fd) != NULL;
}

static void on_closed(uv_handle_t *handle) {
  struct watched_fd *watched = handle->data;
  struct addon *addon = watched->addon;
  free(watched);
  addon_handle_closed(addon);
}

static void close_watched(struct watched_fd *watched) {
  watched->addon->watches->by_fd[watched->fd] = NULL;
  /* The loop stops polling the descriptor at once: it can be closed, or watched again, before on_closed runs. */
  uv_close((uv_handle_t *)&watched->poll, on_closed);
}

static void on_ready(uv_poll_t *poll, int status, int events);

/* Polls for the events of the remaining watches, or closes the handle when none remains. Returns 0 or -errno. */
static int rearm(struct watched_fd *watched) {
  int events = 0;
  struct watch *watch;
  TAILQ_FOREACH(watch, &watched->watches, entry) events |= watch->events;
  if (events != 0) return uv_poll_start(&watched->poll, events, on_ready);
  close_watched(watched);
  return 0;
}

static void on_ready(uv_poll_t *poll, int status, int events) {
  struct watched_fd *watched = poll->data;
  struct addon *addon = watched->addon;
  struct watch_list *ready = &addon->watches->ready;
  /* After a failed poll every watch is ready: the read or write that follows reports the error. */
  if (status < 0) events = UV_READABLE | UV_WRITABLE;
  struct watch *watch, *next;
  for (watch = TAILQ_FIRST(&watched->watches); watch != NULL; watch = next) {
    next = TAILQ_NEXT(watch, entry);
    if ((watch->events & events) == 0) continue;
    TAILQ_REMOVE(&watched->watches, watch, entry);
    TAILQ_INSERT_TAIL(ready, watch, entry);
  }
  rearm(watched);

  napi_handle_scope scope;
  napi_open_handle_scope(addon->env, &scope);
  /* A callback may cancel other watches of this list. */
  while ((watch = TAILQ_FIRST(ready)) != NULL) {
    TAILQ_REMOVE(ready, watch, entry);
    addon_call_back(addon, watch->callback, 0, NULL);
    free(watch);
  }
  napi_close_handle_scope(addon->env, scope);
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

/* Returns 0 or -errno. EPERM means that the descriptor cannot be polled, for example a regular file. */
static int open_watched(struct addon *addon, int fd, struct watched_fd **result) {
  *result = find_watched(addon, fd);
  if (*result != NULL) return 0;
  if (fd < 0) return -EBADF;
  if (!make_room(addon->watches, fd)) return -ENOMEM;
  struct watched_fd *watched = calloc(1, sizeof *watched);
  if (watched == NULL) return -ENOMEM;
  int status = uv_poll_init(addon->loop, &watched->poll, fd);
  if (status != 0) {
    free(watched);
    return status;
  }
  watched->poll.data = watched;
  watched->addon = addon;
  watched->fd = fd;
  TAILQ_INIT(&watched->watches);
  addon->watches->by_fd[fd] = watched;
  addon_handle_opened(addon);
  *result = watched;
  return 0;
}

static void delete_watch(struct addon *addon, struct watch *watch) {
  napi_delete_reference(addon->env, watch->callback);
  free(watch);
}

/* Returns the id of the new watch, or -errno. Takes ownership of the callback when it succeeds. */
static int64_t add_watch(struct addon *addon, int fd, int events, napi_ref callback) {
  struct watched_fd *watched;
  int status = open_watched(addon, fd, &watched);
  if (status != 0) return status;
  struct watch *watch = malloc(sizeof *watch);
  if (watch != NULL) {
    watch->id = ++addon->watches->last_id;
    watch->events = events;
    watch->callback = callback;
    TAILQ_INSERT_TAIL(&watched->watches, watch, entry);
  }
  status = rearm(watched);
  if (watch == NULL) return -ENOMEM;
  if (status == 0) return watch->id;
  TAILQ_REMOVE(&watched->watches, watch, entry);
  free(watch);
  rearm(watched);
  return status;
}

static int64_t watch_fd(struct call *call) {
  const union argument *given = call->given;
  int events = strcmp(given[1].string, "write") == 0 ? UV_WRITABLE : UV_READABLE;
  int64_t result = add_watch(addon_of(call->env), given[0].integer, events, given[2].function);
  if (result >= 0) return result;
  errno = -(int)result; /* EPERM is 1 */
  return -1;
}

/* Removes the watch from the list and returns it, or NULL. */
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
  struct watched_fd *watched = find_watched(addon, call->given[0].integer);
  const int64_t id = call->given[1].integer;
  struct watch *watch = watched == NULL ? NULL : remove_from(&watched->watches, id);
  if (watch != NULL)
    rearm(watched);
  else
    watch = remove_from(&addon->watches->ready, id);
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

void watch_end(struct addon *addon) {
  struct watch_table *table = addon->watches;
  delete_all(addon, &table->ready);
  for (size_t fd = 0; fd < table->capacity; fd++) {
    if (table->by_fd[fd] == NULL) continue;
    delete_all(addon, &table->by_fd[fd]->watches);
    close_watched(table->by_fd[fd]);
  }
  free(table->by_fd);
  free(table);
  addon->watches = NULL;
}

const struct addon_function watch_functions[] = {
    {"watchFd", "isf", watch_fd, false},
    {"cancelWatch", "ii", cancel_watch, false},
    {0},
};
