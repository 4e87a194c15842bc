#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../functions.h"
#include "../napi/addon.h"
#include "../napi/arguments.h"

static napi_value message_pair(napi_env env, napi_callback_info info) {
  (void)info;
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return call_result(env, -1);
  return pair_value(env, pair);
}

/* SCM_MAX_FD: the most descriptors that one message can carry. */
#define MAX_PASSED_DESCRIPTORS 253

/* Room for the descriptors of a message that is being received. */
struct passed {
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(MAX_PASSED_DESCRIPTORS * sizeof(int))];
  int fds[MAX_PASSED_DESCRIPTORS];
  size_t count;
};

static void copy_descriptors(struct passed *passed, struct msghdr *message) {
  for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    size_t bytes = part->cmsg_len - CMSG_LEN(0);
    memcpy(passed->fds + passed->count, CMSG_DATA(part), bytes);
    passed->count += bytes / sizeof(int);
  }
}

/* recvmsg(2) with the message's descriptors, which the caller owns. Sets `truncated` for a longer message. */
static ssize_t receive_message(int fd, struct iovec *data, struct passed *passed, bool *truncated) {
  struct msghdr message = {
      .msg_iov = data, .msg_iovlen = 1, .msg_control = passed->control, .msg_controllen = sizeof passed->control};
  passed->count = 0;
  ssize_t length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  if (length == -1) return -1;
  copy_descriptors(passed, &message);
  *truncated = (message.msg_flags & MSG_TRUNC) != 0;
  return length;
}

static void close_descriptors(const struct passed *passed, size_t first) {
  for (size_t index = first; index < passed->count; index++) close(passed->fds[index]);
}

static napi_value receive_descriptor(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  if (arguments.bad) return NULL;
  /* The OCI runtime also sends the name of the console, which is not used. */
  struct iovec name = {addon_of(env)->scratch, SCRATCH_BYTES};
  struct passed passed;
  bool truncated;
  if (receive_message(fd, &name, &passed, &truncated) == -1) return call_result(env, -1);
  close_descriptors(&passed, 1);
  return integer_value(env, passed.count == 0 ? -ENODATA : passed.fds[0]);
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

static napi_value receive_whole_message(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  int fd = integer_argument(&arguments, 0);
  int64_t most = integer_argument(&arguments, 1);
  if (arguments.bad) return NULL;
  if (most < 0 || most > SCRATCH_BYTES) return integer_value(env, -EINVAL);
  struct iovec data = {addon_of(env)->scratch, (size_t)most};
  struct passed passed;
  bool truncated;
  ssize_t length = receive_message(fd, &data, &passed, &truncated);
  if (length == -1) return call_result(env, -1);
  if (truncated) {
    close_descriptors(&passed, 0);
    return integer_value(env, -EMSGSIZE);
  }
  return message_value(env, data.iov_base, (size_t)length, &passed);
}

/* sendmsg(2) with a descriptor, or without one when `passed` is -1. */
static ssize_t send_with_descriptor(int fd, const void *bytes, size_t length, int passed) {
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof passed)] = {0};
  struct iovec data = {(void *)bytes, length};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  if (passed != -1) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    *part = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof passed), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(part), &passed, sizeof passed);
  }
  return sendmsg(fd, &message, MSG_NOSIGNAL);
}

static napi_value send_descriptor(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  size_t length;
  int fd = integer_argument(&arguments, 0);
  const void *bytes = bytes_argument(&arguments, 1, &length);
  int passed = integer_argument(&arguments, 2);
  if (arguments.bad) return NULL;
  return call_result(env, send_with_descriptor(fd, bytes, length, passed));
}

static napi_value send_message(napi_env env, napi_callback_info info) {
  struct arguments arguments;
  arguments_read(&arguments, env, info);
  size_t length;
  int fd = integer_argument(&arguments, 0);
  const void *bytes = bytes_argument(&arguments, 1, &length);
  napi_valuetype type = napi_undefined;
  napi_typeof(env, arguments.values[2], &type);
  int passed = type == napi_undefined ? -1 : integer_argument(&arguments, 2);
  if (arguments.bad) return NULL;
  return call_result(env, send_with_descriptor(fd, bytes, length, passed));
}

const struct addon_function message_functions[] = {
    {"messagePair", message_pair}, {"receiveFd", receive_descriptor}, {"recvMessage", receive_whole_message},
    {"sendFd", send_descriptor},   {"sendMessage", send_message},     {NULL, NULL},
};
