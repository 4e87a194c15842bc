#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>

#include "../../process/message.h"
#include "../napi/addon.h"
#include "../napi/call.h"

static int64_t message_pair(struct call *call) {
  return pair_made(call, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, call->pair));
}

static int64_t receive_descriptor(struct call *call) {
  int passed;
  /* The OCI runtime also sends the name of the console, which is not used. */
  if (message_receive(call->given[0].integer, addon_of(call->env)->scratch, SCRATCH_BYTES, &passed) == -1) return -1;
  return passed == -1 ? -ENODATA : passed;
}

static napi_value message_value(napi_env env, const void *bytes, size_t length, const struct passed *passed) {
  napi_value message = NULL, data = NULL, fds = NULL;
  napi_create_object(env, &message);
  napi_create_buffer_copy(env, length, bytes, NULL, &data);
  napi_create_array_with_length(env, passed->count, &fds);
  for (size_t index = 0; index < passed->count; index++)
    napi_set_element(env, fds, index, integer_value(env, passed->fds[index]));
  napi_set_named_property(env, message, "data", data);
  napi_set_named_property(env, message, "fds", fds);
  return message;
}

static int64_t receive_whole_message(struct call *call) {
  const int64_t most = call->given[1].integer;
  if (most < 0 || most > SCRATCH_BYTES) return -EINVAL;
  char *scratch = addon_of(call->env)->scratch;
  struct passed passed;
  ssize_t length = message_receive_all(call->given[0].integer, scratch, (size_t)most, &passed, 0);
  if (length >= 0) call->value = message_value(call->env, scratch, (size_t)length, &passed);
  return length;
}

static int64_t send_message(struct call *call) {
  const union argument *given = call->given;
  return message_send(given[0].integer, given[1].data.bytes, given[1].data.length, given[2].integer);
}

static int64_t send_descriptors(struct call *call) {
  const union argument *given = call->given;
  const int passed[MOST_SENT_DESCRIPTORS] = {given[2].integer, given[3].integer, given[4].integer};
  return message_send_some(given[0].integer, given[1].data.bytes, given[1].data.length, passed);
}

const struct addon_function message_functions[] = {
    {"messagePair", "", message_pair, false},
    {"receiveFd", "i", receive_descriptor, false},
    {"recvMessage", "ii", receive_whole_message, false},
    {"sendFd", "idiII", send_descriptors, false},
    {"sendMessage", "idI", send_message, false},
    {0},
};
