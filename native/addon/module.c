#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "addon.h"
#include "relay.h"
#include "watch.h"

struct addon *addon_of(napi_env env) {
  void *addon = NULL;
  napi_get_instance_data(env, &addon);
  return addon;
}

/* The environment goes on ending once the hook is removed. */
static void finish_if_ended(struct addon *addon) {
  if (!addon->ending || addon->open_handles > 0) return;
  napi_async_destroy(addon->env, addon->async_context);
  napi_remove_async_cleanup_hook(addon->cleanup_hook);
}

void addon_handle_closed(struct addon *addon) {
  addon->open_handles--;
  finish_if_ended(addon);
}

void addon_call_back(struct addon *addon, napi_ref function, size_t count, const napi_value *arguments) {
  napi_env env = addon->env;
  napi_value callback, global, error;
  napi_get_reference_value(env, function, &callback);
  napi_delete_reference(env, function);
  napi_get_global(env, &global);
  napi_status status =
      napi_make_callback(env, addon->async_context, global, callback, count, arguments, NULL);
  /* There is no caller to throw to. */
  if (status == napi_pending_exception && napi_get_and_clear_last_exception(env, &error) == napi_ok)
    napi_fatal_exception(env, error);
}

static void end(napi_async_cleanup_hook_handle hook, void *data) {
  struct addon *addon = data;
  (void)hook;
  addon->ending = true;
  /* Held open, so that it is finished below and not in the middle. */
  addon->open_handles++;
  relay_end(addon);
  watch_end(addon);
  addon_handle_closed(addon);
}

static void release(napi_env env, void *data, void *hint) {
  (void)env;
  (void)hint;
  free(data);
}

static bool add_functions(napi_env env, napi_value exports, const struct addon_function *functions) {
  for (; functions->name != NULL; functions++) {
    napi_value function;
    if (napi_create_function(env, functions->name, NAPI_AUTO_LENGTH, functions->callback, NULL, &function) !=
            napi_ok ||
        napi_set_named_property(env, exports, functions->name, function) != napi_ok)
      return false;
  }
  return true;
}

static bool add_all_functions(napi_env env, napi_value exports) {
  return add_functions(env, exports, descriptor_functions) && add_functions(env, exports, socket_functions) &&
         add_functions(env, exports, uevent_functions) && add_functions(env, exports, mount_functions) &&
         add_functions(env, exports, clone_mount_functions) && add_functions(env, exports, whole_file_functions) &&
         add_functions(env, exports, volume_functions) && add_functions(env, exports, file_functions) &&
         add_functions(env, exports, spawn_functions) && add_functions(env, exports, system_functions) &&
         add_functions(env, exports, netlink_functions) &&
         add_functions(env, exports, watch_functions) && add_functions(env, exports, relay_functions);
}

NAPI_MODULE_INIT() {
  struct addon *addon = calloc(1, sizeof *addon);
  napi_value name;
  if (addon == NULL || napi_set_instance_data(env, addon, release, NULL) != napi_ok) {
    free(addon);
    napi_throw_error(env, NULL, "out of memory");
    return NULL;
  }
  addon->env = env;
  if (napi_get_uv_event_loop(env, &addon->loop) != napi_ok ||
      napi_create_string_utf8(env, "microvm-agent", NAPI_AUTO_LENGTH, &name) != napi_ok ||
      napi_async_init(env, NULL, name, &addon->async_context) != napi_ok ||
      napi_add_async_cleanup_hook(env, end, addon, &addon->cleanup_hook) != napi_ok ||
      !add_all_functions(env, exports)) {
    napi_throw_error(env, NULL, "the addon could not be set up");
    return NULL;
  }
  watch_begin(addon);
  return exports;
}
