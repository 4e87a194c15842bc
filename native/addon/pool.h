#pragma once

#include "addon.h"
#include "arguments.h"

/* One system call that may wait for a disk, on its way through the thread pool: the first member of what it needs. */
struct pool_work {
  struct arguments arguments; /* owns the strings */
  napi_ref kept;              /* to the bytes that the call works on, or NULL */
  int result;                 /* of the call: -errno when it failed */
  char *bytes;                /* what a call has read, which is its result when it did not fail, or NULL */
  size_t length;
  void (*run)(struct pool_work *work);
  napi_async_work async;
  napi_deferred deferred;
};

/* `size` bytes for a call, zeroed, with its arguments. NULL, with an exception, when there is no memory. */
void *pool_begin(napi_env env, napi_callback_info info, size_t size);

/* Keeps the view of bytes that is an argument from being collected until the call is over. */
void pool_keep(napi_env env, struct pool_work *work, unsigned index);

/* Calls `run` on a thread. Gives the promise of the result, and owns the work from then on. */
napi_value pool_queue(napi_env env, struct pool_work *work, void (*run)(struct pool_work *work));
