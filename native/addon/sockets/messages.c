#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../functions.h"
#include "../napi/addon.h"
#include "../napi/call.h"

static int64_t message_pair(struct call *call) {
  return pair_made(call, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, call->pair));
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

static int64_t receive_descriptor(struct call *call) {
  /* The OCI runtime also sends the name of the console, which is not used. */
  struct iovec name = {addon_of(call->env)->scratch, SCRATCH_BYTES};
  struct passed passed;
  bool truncated;
  if (receive_message(call->given[0].integer, &name, &passed, &truncated) == -1) return -1;
  close_descriptors(&passed, 1);
  return passed.count == 0 ? -ENODATA : passed.fds[0];
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
  struct iovec data = {addon_of(call->env)->scratch, (size_t)most};
  struct passed passed;
  bool truncated;
  ssize_t length = receive_message(call->given[0].integer, &data, &passed, &truncated);
  if (length == -1) return -1;
  if (truncated) {
    close_descriptors(&passed, 0);
    return -EMSGSIZE;
  }
  call->value = message_value(call->env, data.iov_base, (size_t)length, &passed);
  return 0;
}

/* sendmsg(2) with a descriptor, or without one when it is -1. */
static int64_t send_message(struct call *call) {
  struct iovec data = {call->given[1].data.bytes, call->given[1].data.length};
  const int passed = call->given[2].integer;
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof passed)] = {0};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  if (passed != -1) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    struct cmsghdr *part = CMSG_FIRSTHDR(&message);
    *part = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof passed), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(part), &passed, sizeof passed);
  }
  return sendmsg(call->given[0].integer, &message, MSG_NOSIGNAL);
}

const struct addon_function message_functions[] = {
    {"messagePair", "", message_pair, false},
    {"receiveFd", "i", receive_descriptor, false},
    {"recvMessage", "ii", receive_whole_message, false},
    {"sendFd", "idi", send_message, false},
    {"sendMessage", "idI", send_message, false},
    {0},
};
