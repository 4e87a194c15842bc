#pragma once

#include "addon.h"
#include "arguments.h"

/* One system call that may wait for a disk, on its way through the thread pool: the first member of what it needs. */
struct pool_work {
  struct arguments arguments; /* owns the strings */
  napi_ref kept;              /* to the bytes that the call works on, or NULL */
  int result;                 /* of the call: -errno when it failed */
  void (*run)(struct pool_work *work);
  napi_async_work async;
  napi_deferred deferred;
};

/* `size` bytes for a call, zeroed, with its arguments. NULL, with an exception, when there is no memory. */
void *pool_begin(napi_env env, napi_callback_info info, size_t size);

/* Calls `run` on a thread. Gives the promise of the result, and owns the work from then on. */
napi_value pool_queue(napi_env env, struct pool_work *work, void (*run)(struct pool_work *work));
