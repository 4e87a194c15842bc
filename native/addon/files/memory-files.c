#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../functions.h"
#include "../napi/call.h"

static int64_t memory_file(struct call *call) {
  return memfd_create(call->given[0].string, MFD_CLOEXEC);
}

static int64_t splice_once(struct call *call) {
  const union argument *given = call->given;
  ssize_t moved;
  do
    moved = splice(given[0].integer, NULL, given[1].integer, NULL, given[2].integer, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  while (moved == -1 && errno == EINTR);
  return moved;
}

static int64_t read_at(struct call *call) {
  const int64_t length = call->given[2].integer < 0 ? 0 : call->given[2].integer;
  void *data;
  if (napi_create_buffer(call->env, length, &data, &call->value) != napi_ok) return -ENOMEM;
  ssize_t count = pread(call->given[0].integer, data, length, call->given[1].integer);
  if (count >= 0 && count < length) napi_create_buffer_copy(call->env, count, data, NULL, &call->value);
  return count;
}

static int64_t write_at(struct call *call) {
  const union argument *given = call->given;
  return pwrite(given[0].integer, given[2].data.bytes, given[2].data.length, given[1].integer);
}

static int64_t position_of(struct call *call) {
  return lseek(call->given[0].integer, 0, SEEK_CUR);
}

static int64_t set_position(struct call *call) {
  return lseek(call->given[0].integer, call->given[1].integer, SEEK_SET);
}

static int64_t truncate_file(struct call *call) {
  return ftruncate(call->given[0].integer, call->given[1].integer);
}

static int64_t punch_hole(struct call *call) {
  const union argument *given = call->given;
  return fallocate(given[0].integer, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, given[1].integer, given[2].integer);
}

const struct addon_function memory_file_functions[] = {
    {"memoryFile", "s", memory_file, false},
    {"splice", "iii", splice_once, false},
    {"readAt", "iii", read_at, false},
    {"writeAt", "iid", write_at, false},
    {"positionOf", "i", position_of, false},
    {"setPosition", "ii", set_position, false},
    {"truncate", "ii", truncate_file, false},
    {"punchHole", "iii", punch_hole, false},
    {0},
};
