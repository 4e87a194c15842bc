#include <stdlib.h>

#include "functions.h"
#include "napi/addon.h"
#include "napi/call.h"
#include "relay/relay.h"
#include "sockets/reading.h"
#include "watch.h"

static const struct addon_function *const tables[] = {
    descriptor_functions,  file_functions,        hang_report_functions, kernel_log_functions,
    mapped_file_functions, memory_file_functions, message_functions,     mount_functions,
    namespace_functions,   netlink_functions,     reading_functions,     relay_functions,
    socket_functions,      spawn_functions,       system_functions,      watch_functions,
};

static bool export_table(napi_env env, napi_value exports, const struct addon_function *functions) {
  for (; functions->name != NULL; functions++) {
    napi_value function;
    void *data = (void *)functions;
    if (napi_create_function(env, functions->name, NAPI_AUTO_LENGTH, call_function, data, &function) != napi_ok ||
        napi_set_named_property(env, exports, functions->name, function) != napi_ok)
      return false;
  }
  return true;
}

static bool export_all(napi_env env, napi_value exports) {
  for (size_t index = 0; index < sizeof tables / sizeof tables[0]; index++)
    if (!export_table(env, exports, tables[index])) return false;
  return true;
}

static void end(napi_async_cleanup_hook_handle hook, void *data) {
  struct addon *addon = data;
  (void)hook;
  addon->ending = true;
  /* This extra handle keeps a handle that closes meanwhile from being the last one. */
  addon_handle_opened(addon);
  relay_end(addon);
  readings_end(addon);
  watch_end(addon);
  addon_handle_closed(addon);
}

static void release(napi_env env, void *data, void *hint) {
  (void)env;
  (void)hint;
  free(data);
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
      napi_async_init(env, NULL, name, &addon->async_context) != napi_ok || !watch_begin(addon) ||
      napi_add_async_cleanup_hook(env, end, addon, &addon->cleanup_hook) != napi_ok || !export_all(env, exports)) {
    napi_throw_error(env, NULL, "the addon could not be set up");
    return NULL;
  }
  return exports;
}
