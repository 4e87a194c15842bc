/* The JavaScript interface of the relay thread. A stream's callback runs once on the loop, after the stream's end. */
#define _GNU_SOURCE
#include "relay.h"

#include <errno.h>
#include <stdlib.h>

#include "../functions.h"
#include "../napi/call.h"
#include "kept.h"
#include "thread.h"

struct relay {
  struct addon *addon;
  struct relay_thread *thread;
  uv_async_t ended;
  struct tap *tap; /* NULL until the first stream that has a tail */
  int64_t last_id;
  LIST_HEAD(, relayed) active; /* streams whose callback has not run; the loop stays alive only for these */
};

/* Runs on the relay thread. */
static void notify(void *data) {
  struct relay *relay = data;
  uv_async_send(&relay->ended);
}

static void free_relayed(struct relayed *relayed) {
  LIST_REMOVE(relayed, owned);
  tail_free(relayed->tail);
  free(relayed);
}

/* The last bytes of a stream, and the offset after them; -ENODATA without a tail. */
static napi_value tail_value(napi_env env, struct tail *tail) {
  if (tail == NULL) return integer_value(env, -ENODATA);
  char *bytes = malloc(tail_capacity(tail));
  if (bytes == NULL) return integer_value(env, -ENOMEM);
  uint64_t total;
  size_t length = tail_read(tail, bytes, &total);
  napi_value value, total_bytes, last;
  napi_create_object(env, &value);
  napi_create_bigint_uint64(env, total, &total_bytes);
  napi_create_buffer_copy(env, length, bytes, NULL, &last);
  free(bytes);
  napi_set_named_property(env, value, "totalBytes", total_bytes);
  napi_set_named_property(env, value, "last", last);
  return value;
}

static void call_back(struct relay *relay, struct relayed *relayed) {
  napi_env env = relay->addon->env;
  napi_value arguments[3];
  napi_create_bigint_uint64(env, relayed->stream.moved_bytes, &arguments[0]);
  arguments[1] = integer_value(env, relayed->stream.error);
  arguments[2] = tail_value(env, relayed->tail);
  napi_ref callback = relayed->owner_data;
  napi_delete_reference(env, relayed->owner_detached);
  free_relayed(relayed);
  if (LIST_EMPTY(&relay->active)) uv_unref((uv_handle_t *)&relay->ended);
  addon_call_back(relay->addon, callback, 3, arguments);
}

static struct relayed *find(struct relay *relay, int64_t id) {
  struct relayed *relayed = NULL;
  if (relay == NULL) return NULL;
  LIST_FOREACH(relayed, &relay->active, owned) if (relayed->id == id) break;
  return relayed;
}

static void on_ended(uv_async_t *handle) {
  struct relay *relay = handle->data;
  napi_env env = relay->addon->env;
  napi_handle_scope scope;
  struct relayed *relayed;
  napi_open_handle_scope(env, &scope);
  for (int64_t id; (id = relay_thread_take_detached(relay->thread)) != 0;) {
    relayed = find(relay, id);
    if (relayed != NULL) addon_call(relay->addon, relayed->owner_detached, 0, NULL);
  }
  while ((relayed = relay_thread_take_ended(relay->thread)) != NULL) call_back(relay, relayed);
  napi_close_handle_scope(env, scope);
}

static void on_closed(uv_handle_t *handle) {
  struct relay *relay = handle->data;
  struct addon *addon = relay->addon;
  free(relay);
  addon_handle_closed(addon);
}

/* Starts the relay at its first use. Returns NULL with errno set. */
static struct relay *relay_of(struct addon *addon) {
  if (addon->relay != NULL) return addon->relay;
  struct relay *relay = calloc(1, sizeof *relay);
  if (relay == NULL) return NULL;
  relay->addon = addon;
  relay->ended.data = relay;
  int status = uv_async_init(addon->loop, &relay->ended, on_ended);
  if (status != 0) {
    free(relay);
    errno = -status;
    return NULL;
  }
  addon_handle_opened(addon);
  uv_unref((uv_handle_t *)&relay->ended);
  relay->thread = relay_thread_start(notify, relay);
  if (relay->thread == NULL) {
    int error = errno;
    uv_close((uv_handle_t *)&relay->ended, on_closed);
    errno = error;
    return NULL;
  }
  addon->relay = relay;
  return relay;
}

static int add_tail(struct relay *relay, struct relayed *relayed, size_t bytes) {
  if (relay->tap == NULL) relay->tap = tap_open();
  if (relay->tap == NULL) return -errno;
  const struct stream *stream = &relayed->stream;
  relayed->tail = tail_new(relay->tap, stream->through >= 0 ? stream->through : stream->source, bytes);
  if (relayed->tail == NULL) return -ENOMEM;
  relayed->stream.tail = relayed->tail;
  return 0;
}

enum { SHUTS_DOWN = 1, OUTLIVES_DEVICE = 2, RESUMES = 4 };

/* Returns the stream's id. On success the stream owns the callbacks and the descriptors. */
static int64_t relay_start(struct call *call) {
  const union argument *given = call->given;
  struct relay *relay = relay_of(addon_of(call->env));
  if (relay == NULL) return -1;
  struct relayed *relayed = calloc(1, sizeof *relayed);
  if (relayed == NULL) return -ENOMEM;
  int status = stream_open(&relayed->stream, given[0].integer, given[1].integer, given[2].integer);
  const size_t tail_bytes = given[4].integer;
  if (status == 0 && tail_bytes > 0) status = add_tail(relay, relayed, tail_bytes);
  if (status == 0 && given[5].integer >= 0)
    status = stream_count(&relayed->stream, (int)given[5].integer, given[6].integer, given[7].integer >= 0);
  if (status == 0 && given[7].integer >= 0)
    status = kept_open(&relayed->stream, (int)given[7].integer, (int)given[8].integer);
  if (status != 0) {
    stream_forget_totals(&relayed->stream);
    tail_free(relayed->tail);
    free(relayed);
    errno = -status;
    return -1;
  }
  relayed->stream.shuts_down = (given[3].integer & SHUTS_DOWN) != 0;
  relayed->stream.outlives_device = (given[3].integer & OUTLIVES_DEVICE) != 0;
  relayed->id = ++relay->last_id;
  relayed->stream.resumes = (given[3].integer & RESUMES) != 0;
  relayed->owner_data = given[9].function;
  relayed->owner_detached = given[10].function;
  if (LIST_EMPTY(&relay->active)) uv_ref((uv_handle_t *)&relay->ended);
  LIST_INSERT_HEAD(&relay->active, relayed, owned);
  int64_t id = relayed->id;
  relay_thread_add(relay->thread, relayed);
  return id;
}

static int64_t relay_drain(struct call *call) {
  struct relay *relay = addon_of(call->env)->relay;
  if (relay != NULL) relay_thread_drain(relay->thread, call->given[0].integer);
  return 0;
}

static int64_t relay_stop(struct call *call) {
  struct relay *relay = addon_of(call->env)->relay;
  if (relay != NULL) relay_thread_cancel(relay->thread, call->given[0].integer);
  return 0;
}

static int64_t relay_detach(struct call *call) {
  struct relay *relay = addon_of(call->env)->relay;
  if (relay != NULL) relay_thread_detach(relay->thread, call->given[0].integer);
  return 0;
}

static int64_t relay_attach(struct call *call) {
  struct relay *relay = addon_of(call->env)->relay;
  if (relay == NULL) return -ENOENT;
  relay_thread_attach(relay->thread, call->given[0].integer, (int)call->given[1].integer);
  return 0;
}

static int64_t relay_tail(struct call *call) {
  struct relayed *relayed = find(addon_of(call->env)->relay, call->given[0].integer);
  if (relayed == NULL) return -ENOENT;
  call->value = tail_value(call->env, relayed->tail);
  return 0;
}

static int64_t relayed_bytes(struct call *call) {
  struct relay *relay = addon_of(call->env)->relay;
  uint64_t bytes = relay == NULL ? 0 : relay_thread_moved_bytes(relay->thread);
  napi_create_bigint_uint64(call->env, bytes, &call->value);
  return 0;
}

void relay_end(struct addon *addon) {
  struct relay *relay = addon->relay;
  if (relay == NULL) return;
  struct relayed *relayed;
  addon->relay = NULL;
  relay_thread_stop(relay->thread);
  while (relay_thread_take_detached(relay->thread) != 0) continue;
  while ((relayed = relay_thread_take_ended(relay->thread)) != NULL) {
    napi_delete_reference(addon->env, relayed->owner_data);
    napi_delete_reference(addon->env, relayed->owner_detached);
    free_relayed(relayed);
  }
  tap_close(relay->tap);
  relay_thread_free(relay->thread);
  uv_close((uv_handle_t *)&relay->ended, on_closed);
}

const struct addon_function relay_functions[] = {
    {"relayStart", "iiiiiiiiiff", relay_start, false},
    {"relayDrain", "i", relay_drain, false},
    {"relayStop", "i", relay_stop, false},
    {"relayDetach", "i", relay_detach, false},
    {"relayAttach", "ii", relay_attach, false},
    {"relayTail", "i", relay_tail, false},
    {"relayedBytes", "", relayed_bytes, false},
    {0},
};
