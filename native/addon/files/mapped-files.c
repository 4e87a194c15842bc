#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../functions.h"
#include "../napi/call.h"

/*
 * This function is of Node-API 10, so node_api.h declares it only for an addon that asks for that. agent-ctl may run in a Node 20,
 * which dies of such an addon, and never calls the function.
 */
napi_status node_api_create_external_string_latin1(napi_env env, char *text, size_t length, napi_finalize finalize,
                                                   void *hint, napi_value *result, bool *copied);

/* Maps a whole file for reading. Returns its bytes, or -errno. Like those of a library, they must not be overwritten while they are in use. */
static int64_t map_file(const char *path, int flags, void **bytes) {
  struct stat status;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd == -1) return -1;
  if (fstat(fd, &status) != 0) return closed_after(fd, -1);
  *bytes = mmap(NULL, status.st_size, PROT_READ, MAP_PRIVATE | flags, fd, 0);
  return closed_after(fd, *bytes == MAP_FAILED ? -1 : status.st_size);
}

static void unmap(napi_env env, void *bytes, void *length) {
  (void)env;
  munmap(bytes, (size_t)length);
}

static int64_t mapped_text(struct call *call) {
  void *bytes;
  bool copied;
  int64_t length = map_file(call->given[0].string, 0, &bytes);
  if (length < 0) return length;
  if (node_api_create_external_string_latin1(call->env, bytes, length, unmap, (void *)length, &call->value, &copied) ==
      napi_ok)
    return length;
  munmap(bytes, length);
  return -ENOMEM;
}

static int64_t mapped_bytes(struct call *call) {
  void *bytes;
  int64_t length = map_file(call->given[0].string, MAP_POPULATE, &bytes);
  if (length < 0) return length;
  if (napi_create_external_buffer(call->env, length, bytes, unmap, (void *)length, &call->value) == napi_ok)
    return length;
  munmap(bytes, length);
  return -ENOMEM;
}

const struct addon_function mapped_file_functions[] = {
    {"mappedText", "s", mapped_text, false},
    {"mappedBytes", "s", mapped_bytes, false},
    {0},
};
