#include "addon.h"

struct addon *addon_of(napi_env env) {
  void *addon = NULL;
  napi_get_instance_data(env, &addon);
  return addon;
}

void addon_handle_opened(struct addon *addon) {
  addon->open_handles++;
}

void addon_handle_closed(struct addon *addon) {
  addon->open_handles--;
  if (!addon->ending || addon->open_handles > 0) return;
  napi_async_destroy(addon->env, addon->async_context);
  /* The environment continues to end once the hook is removed. */
  napi_remove_async_cleanup_hook(addon->cleanup_hook);
}

void addon_call(struct addon *addon, napi_ref function, size_t count, const napi_value *arguments) {
  napi_env env = addon->env;
  napi_value callback, global, error;
  napi_get_reference_value(env, function, &callback);
  napi_get_global(env, &global);
  napi_status status = napi_make_callback(env, addon->async_context, global, callback, count, arguments, NULL);
  /* No JavaScript caller is on the stack, so an exception is reported as uncaught. */
  if (status == napi_pending_exception && napi_get_and_clear_last_exception(env, &error) == napi_ok)
    napi_fatal_exception(env, error);
}

void addon_call_back(struct addon *addon, napi_ref function, size_t count, const napi_value *arguments) {
  addon_call(addon, function, count, arguments);
  napi_delete_reference(addon->env, function);
}
