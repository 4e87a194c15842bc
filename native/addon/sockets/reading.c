/*
 * Sockets that are read all the time: each is a uv_poll_t of Node's loop, which a read leaves armed. A watch (watch.c) would
 * cost two system calls for each read.
 */
#include "reading.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "../napi/call.h"

struct reading {
  uv_poll_t poll;
  LIST_ENTRY(reading) entry;
  struct addon *addon;
  int fd;
  napi_ref ready;
};

static struct reading *find(struct addon *addon, int fd) {
  struct reading *reading;
  LIST_FOREACH(reading, &addon->readings, entry) if (reading->fd == fd) break;
  return reading;
}

/* Called for an error, too: the read that follows reports it, or takes bytes that came before. libuv has stopped then. */
static void on_ready(uv_poll_t *poll, int status, int events) {
  (void)events;
  struct reading *reading = poll->data;
  if (status != 0) uv_poll_start(poll, UV_READABLE, on_ready);
  napi_env env = reading->addon->env;
  napi_handle_scope scope;
  napi_open_handle_scope(env, &scope);
  addon_call(reading->addon, reading->ready, 0, NULL);
  napi_close_handle_scope(env, scope);
}

static void on_closed(uv_handle_t *handle) {
  struct reading *reading = handle->data;
  struct addon *addon = reading->addon;
  free(reading);
  addon_handle_closed(addon);
}

static void end(struct reading *reading) {
  LIST_REMOVE(reading, entry);
  napi_delete_reference(reading->addon->env, reading->ready);
  uv_close((uv_handle_t *)&reading->poll, on_closed); /* stops the polling at once */
}

static int64_t start_reading(struct call *call) {
  struct addon *addon = addon_of(call->env);
  struct reading *reading = malloc(sizeof *reading);
  if (reading == NULL) return -ENOMEM;
  *reading = (struct reading){.addon = addon, .fd = call->given[0].integer, .ready = call->given[1].function};
  int status = uv_poll_init(addon->loop, &reading->poll, reading->fd);
  if (status != 0) {
    free(reading);
    errno = -status; /* -EPERM is -1, which means `see errno` */
    return -1;
  }
  reading->poll.data = reading;
  addon_handle_opened(addon);
  LIST_INSERT_HEAD(&addon->readings, reading, entry);
  uv_poll_start(&reading->poll, UV_READABLE, on_ready);
  return 0;
}

static int64_t stop_reading(struct call *call) {
  struct reading *reading = find(addon_of(call->env), call->given[0].integer);
  if (reading == NULL) return -ENOENT;
  end(reading);
  return 0;
}

void readings_end(struct addon *addon) {
  while (!LIST_EMPTY(&addon->readings)) end(LIST_FIRST(&addon->readings));
}

const struct addon_function reading_functions[] = {
    {"startReading", "if", start_reading, false},
    {"stopReading", "i", stop_reading, false},
    {0},
};
