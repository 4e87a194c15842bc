#pragma once

#include <node_api.h>
#include <stdbool.h>
#include <sys/queue.h>
#include <uv.h>

#define SCRATCH_BYTES 65536

struct reading;
struct relay;
struct watch_table;

/* An instance of the addon. Each Node environment has one and uses it on one thread. */
struct addon {
  napi_env env;
  uv_loop_t *loop;
  napi_async_context async_context;
  napi_async_cleanup_hook_handle cleanup_hook;
  unsigned open_handles;
  bool ending; /* the environment waits until no handle is open */

  struct watch_table *watches;
  LIST_HEAD(reading_list, reading) readings; /* sockets/reading.c */
  struct relay *relay;                       /* owned by relay/relay.c; NULL until the first stream starts */
  char scratch[SCRATCH_BYTES];               /* valid within one call */
};

struct addon *addon_of(napi_env env);

/* Count the open handles on the loop. The environment ends only after the last one is closed. */
void addon_handle_opened(struct addon *addon);

void addon_handle_closed(struct addon *addon);

/* Calls a JavaScript function from the loop, and runs the microtasks. */
void addon_call(struct addon *addon, napi_ref function, size_t count, const napi_value *arguments);

/* The same, and deletes the reference. */
void addon_call_back(struct addon *addon, napi_ref function, size_t count, const napi_value *arguments);
