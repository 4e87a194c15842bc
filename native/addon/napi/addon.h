#pragma once

#define NAPI_VERSION 8
#include <node_api.h>
#include <stdbool.h>
#include <uv.h>

/* The largest datagram or read that the scratch buffer takes. */
#define SCRATCH_BYTES 65536

struct relay;
struct watch_table;

/* One instance of the addon. Each Node environment has one instance and runs it on one thread. */
struct addon {
  napi_env env;
  uv_loop_t *loop;
  napi_async_context async_context;
  napi_async_cleanup_hook_handle cleanup_hook;
  unsigned open_handles; /* on the loop; see addon_handle_opened */
  bool ending;           /* the environment waits until no handle is open */

  struct watch_table *watches; /* owned by watch.c */
  struct relay *relay;         /* owned by relay/relay.c; NULL until the first stream starts */
  char scratch[SCRATCH_BYTES]; /* valid within one call */
};

/* The instance of this environment. */
struct addon *addon_of(napi_env env);

/* Counts a handle that was initialised on the loop. The environment ends only after the handle is closed. */
void addon_handle_opened(struct addon *addon);

/* Counts a handle as closed. The last one lets an ending environment continue. */
void addon_handle_closed(struct addon *addon);

/* Calls a JavaScript function from the loop and runs the microtasks after it. Deletes the reference. */
void addon_call_back(struct addon *addon, napi_ref function, size_t count, const napi_value *arguments);
