#define _GNU_SOURCE
#include "power-button.h"

#include <errno.h>
#include <linux/genetlink.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Names of Linux (drivers/acpi/event.c, button.c). An event's only attribute begins with the class of its device. */
#define FAMILY "acpi_event"
#define EVENT_ATTRIBUTE 1
#define POWER_BUTTON "button/power"

struct message {
  struct nlmsghdr header;
  struct genlmsghdr generic;
  char attributes[4096];
};

#define HEADERS offsetof(struct message, attributes)

struct attributes {
  const char *bytes;
  size_t length;
};

/* Returns the content of the first attribute of a type, which is empty when there is none. */
static struct attributes attribute(struct attributes all, unsigned type) {
  for (struct nlattr head; all.length >= sizeof head;) {
    memcpy(&head, all.bytes, sizeof head);
    if (head.nla_len < sizeof head || head.nla_len > all.length) break;
    if ((head.nla_type & NLA_TYPE_MASK) == type)
      return (struct attributes){all.bytes + sizeof head, head.nla_len - sizeof head};
    size_t taken = NLA_ALIGN(head.nla_len);
    if (taken > all.length) break;
    all = (struct attributes){all.bytes + taken, all.length - taken};
  }
  return (struct attributes){NULL, 0};
}

/* Returns how many bytes of attributes the next message of the kernel has, or -1 with errno set. */
static ssize_t receive(int fd, struct message *message) {
  struct sockaddr_nl sender = {.nl_family = AF_NETLINK};
  socklen_t size = sizeof sender;
  ssize_t length = recvfrom(fd, message, sizeof *message, 0, (struct sockaddr *)&sender, &size);
  if (length < 0) return -1;
  /* A process with CAP_NET_ADMIN can send here, too; the kernel's port is 0. */
  return sender.nl_pid == 0 && length > (ssize_t)HEADERS ? length - (ssize_t)HEADERS : 0;
}

/* Returns the number of the group that gets the family's events, or 0 with errno set. The kernel answers at once. */
static uint32_t find_group(int fd) {
  struct message message = {
      .header = {.nlmsg_type = GENL_ID_CTRL, .nlmsg_flags = NLM_F_REQUEST},
      .generic = {.cmd = CTRL_CMD_GETFAMILY, .version = 1},
  };
  const struct nlattr name = {.nla_len = NLA_HDRLEN + sizeof FAMILY, .nla_type = CTRL_ATTR_FAMILY_NAME};
  memcpy(message.attributes, &name, sizeof name);
  memcpy(message.attributes + NLA_HDRLEN, FAMILY, sizeof FAMILY);
  message.header.nlmsg_len = HEADERS + NLA_ALIGN(name.nla_len);
  if (send(fd, &message, message.header.nlmsg_len, 0) < 0) return 0;
  ssize_t length = receive(fd, &message);
  if (length < 0) return 0;
  struct attributes found = {message.attributes, (size_t)length};
  /* An error is a message without attributes. */
  errno = ENOENT;
  if (message.header.nlmsg_type != GENL_ID_CTRL) return 0;
  found = attribute(attribute(found, CTRL_ATTR_MCAST_GROUPS), 1);
  found = attribute(found, CTRL_ATTR_MCAST_GRP_ID);
  uint32_t group = 0;
  if (found.length == sizeof group) memcpy(&group, found.bytes, sizeof group);
  return group;
}

int power_button_open(void) {
  int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_GENERIC);
  if (fd < 0) return -1;
  const uint32_t group = find_group(fd);
  if (group != 0 && setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) == 0) return fd;
  int error = errno;
  close(fd);
  errno = error;
  return -1;
}

bool power_button_pressed(int fd) {
  struct message message;
  for (;;) {
    ssize_t length = receive(fd, &message);
    if (length < 0 && (errno == EINTR || errno == ENOBUFS)) continue;
    if (length < 0) return false;
    const struct attributes event = attribute((struct attributes){message.attributes, (size_t)length}, EVENT_ATTRIBUTE);
    if (event.length >= sizeof POWER_BUTTON && memcmp(event.bytes, POWER_BUTTON, sizeof POWER_BUTTON) == 0) return true;
  }
}
