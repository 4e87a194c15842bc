#pragma once

#define NAPI_VERSION 8
#include <node_api.h>
#include <uv.h>

#include "watch-table.h"

/* The most that one datagram gives, or one read whose length is not known before. */
#define SCRATCH_BYTES 65536

struct relay;

/* What one instance of the addon holds (one for each Node environment, which has one thread). */
struct addon {
  napi_env env;
  uv_loop_t *loop;
  napi_async_context async_context;
  napi_async_cleanup_hook_handle cleanup_hook;
  /* Handles on the loop that are not closed yet, and whether the environment waits for that. */
  unsigned open_handles;
  bool ending;

  struct watch_table watches;
  struct relay *relay; /* NULL until the first one begins */
  char scratch[SCRATCH_BYTES];
};

struct addon *addon_of(napi_env env);

/* A handle of the loop was closed. */
void addon_handle_closed(struct addon *addon);

/* Calls a JavaScript function from the loop, and lets its promises run. Releases the reference. */
void addon_call_back(struct addon *addon, napi_ref function, size_t count, const napi_value *arguments);

/* The functions of each family, ended by an entry without a name. */
struct addon_function {
  const char *name;
  napi_callback callback;
};
extern const struct addon_function descriptor_functions[];
extern const struct addon_function socket_functions[];
extern const struct addon_function uevent_functions[];
extern const struct addon_function mount_functions[];
extern const struct addon_function clone_mount_functions[];
extern const struct addon_function volume_functions[];
extern const struct addon_function file_functions[];
extern const struct addon_function whole_file_functions[];
extern const struct addon_function spawn_functions[];
extern const struct addon_function system_functions[];
extern const struct addon_function netlink_functions[];
extern const struct addon_function watch_functions[];
extern const struct addon_function relay_functions[];
