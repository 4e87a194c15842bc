/* An agent that passes the write end of a pipe to vminit and exits with 0 once no process holds that end any more. */
#define _GNU_SOURCE
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "channel/record.h"

#define COPIES 100
#define LIMIT_MS 10000

int main(void) {
  int ends[2], copies[COPIES];
  if (pipe(ends) != 0) return 1;
  for (int i = 0; i < COPIES; i++) copies[i] = ends[1];
  struct record record = {.version = RECORD_VERSION, .kind = RECORD_POWER_OFF};
  struct iovec bytes = {.iov_base = &record, .iov_len = sizeof record};
  _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof copies)];
  struct msghdr message = {
      .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  *header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof copies), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(header), copies, sizeof copies);
  if (sendmsg(3, &message, 0) != sizeof record) return 1;
  close(ends[1]);
  struct pollfd closed = {.fd = ends[0], .events = POLLIN};
  return poll(&closed, 1, LIMIT_MS) == 1 && (closed.revents & POLLHUP) ? 0 : 1;
}
