#define _GNU_SOURCE
#include "broker-process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../broker/protocol.h"
#include "../../broker/sockets/message.h"
#include "../../process/defaults.h"
#include "../log.h"

/* The broker's descriptor of the socket to vminit. */
#define VMINIT_FD 3

#define EXIT_CANNOT_EXECUTE 127

/* In the child. Returns with errno set when something failed. */
static void become_broker(int fd) {
  static char *const command[] = {"vminit", "--broker", NULL};
  /* dup2(2) leaves the flag of a descriptor as it is that has the number already. */
  if (fd == VMINIT_FD ? fcntl(fd, F_SETFD, 0) != 0 : dup2(fd, VMINIT_FD) < 0) return;
  if (close_range(VMINIT_FD + 1, ~0U, 0) != 0) return;
  reset_signals();
  /* Whatever became of the file: the initramfs that the program is from may be deleted. */
  execv("/proc/self/exe", command);
}

bool broker_process_start(struct broker_process *broker) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return false;
  pid_t pid = fork();
  if (pid == 0) {
    become_broker(pair[1]);
    _exit(EXIT_CANNOT_EXECUTE);
  }
  int error = errno;
  close(pair[1]);
  if (pid < 0) {
    close(pair[0]);
    errno = error;
    return false;
  }
  *broker = (struct broker_process){.pid = pid, .fd = pair[0]};
  return true;
}

static void close_socket(struct broker_process *broker) {
  if (broker->fd >= 0) close(broker->fd);
  broker->fd = -1;
}

void broker_process_ended(struct broker_process *broker) {
  broker->pid = 0;
  close_socket(broker);
}

bool broker_process_announce(const struct broker_process *broker, pid_t agent, int control_fd) {
  const struct vminit_message message = {
      .version = BROKER_PROTOCOL_VERSION, .kind = VMINIT_AGENT, .pid = (uint32_t)agent};
  return message_send(broker->fd, &message, sizeof message, control_fd) == sizeof message;
}

bool broker_process_reports_hung(struct broker_process *broker, pid_t agent) {
  struct vminit_message message;
  int passed;
  while (broker->fd >= 0) {
    ssize_t length = message_receive(broker->fd, &message, sizeof message, &passed);
    if (passed >= 0) close(passed);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0 && errno == EAGAIN) return false;
    bool is_known =
        length == sizeof message && message.version == BROKER_PROTOCOL_VERSION && message.kind == VMINIT_HUNG;
    if (is_known && message.pid == (uint32_t)agent) return true;
    /* An earlier agent, which was reaped since, needs nothing more. */
    if (is_known) continue;
    if (length != 0) log_line("the broker sent what is no message");
    /* Its end is noticed when it is reaped. */
    kill(broker->pid, SIGKILL);
    close_socket(broker);
  }
  return false;
}
