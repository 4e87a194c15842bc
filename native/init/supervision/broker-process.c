#define _GNU_SOURCE
#include "broker-process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../broker/protocol.h"
#include "../../process/defaults.h"
#include "../../process/message.h"
#include "../clock.h"
#include "../log.h"

#define VMINIT_FD 3

#define EXIT_CANNOT_EXECUTE 127

/* The time limit for a ping. It is long, because a broker's end loses the pod: Kata's Go shim never dials again. */
#ifndef BROKER_HANG_MS
#define BROKER_HANG_MS 30000
#endif

/* vminit checks this often for the answer. A check later than LATE_MS does not count: the guest may have paused. */
#define LOOK_MS 1000
#define LATE_MS 500

/* Runs in the child. Returns with errno set on failure. */
static void become_broker(int fd) {
  static char *const command[] = {"vminit", "--broker", NULL};
  /* dup2(2) onto the same number does not clear close-on-exec. */
  if (fd == VMINIT_FD ? fcntl(fd, F_SETFD, 0) != 0 : dup2(fd, VMINIT_FD) < 0) return;
  if (close_range(VMINIT_FD + 1, ~0U, 0) != 0) return;
  reset_signals();
  /* The initramfs with the program's file may be deleted. */
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
  broker->look_at_ms = 0;
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

void broker_process_leave(const struct broker_process *broker, int timeout_ms) {
  struct vminit_message message = {
      .version = BROKER_PROTOCOL_VERSION, .kind = VMINIT_LEAVE, .pid = (uint32_t)timeout_ms};
  if (broker->fd < 0 || message_send(broker->fd, &message, sizeof message, -1) < 0) return;
  const int64_t end_ms = monotonic_ms() + timeout_ms;
  for (int64_t left_ms; (left_ms = end_ms - monotonic_ms()) > 0;) {
    struct pollfd polled = {.fd = broker->fd, .events = POLLIN};
    int passed;
    poll(&polled, 1, (int)left_ms);
    ssize_t length = message_receive(broker->fd, &message, sizeof message, &passed);
    if (passed >= 0) close(passed);
    if (length < 0 && errno == EAGAIN) continue;
    if (length <= 0 || message.kind == VMINIT_LEAVE) return;
  }
}

static void plan_look(struct broker_process *broker, int64_t now_ms) {
  broker->look_began_ms = now_ms;
  broker->look_at_ms = now_ms + LOOK_MS;
}

void broker_process_ping(struct broker_process *broker) {
  if (broker->fd < 0 || broker->look_at_ms != 0) return;
  const struct vminit_message message = {
      .version = BROKER_PROTOCOL_VERSION, .kind = VMINIT_PING, .pid = ++broker->pings};
  /* A broker that does not read its socket does not answer either. */
  (void)message_send(broker->fd, &message, sizeof message, -1);
  broker->waited_ms = 0;
  plan_look(broker, monotonic_ms());
}

bool broker_process_hangs(struct broker_process *broker, int64_t now_ms) {
  if (now_ms <= broker->look_at_ms + LATE_MS) broker->waited_ms += broker->look_at_ms - broker->look_began_ms;
  if (broker->waited_ms < BROKER_HANG_MS) {
    plan_look(broker, now_ms);
    return false;
  }
  broker->look_at_ms = 0;
  log_line("the broker has not answered for %d s, and is killed", BROKER_HANG_MS / 1000);
  return true;
}

bool broker_process_reports_hung(struct broker_process *broker, pid_t agent) {
  struct vminit_message message;
  int passed;
  while (broker->fd >= 0) {
    ssize_t length = message_receive(broker->fd, &message, sizeof message, &passed);
    if (passed >= 0) close(passed);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0 && errno == EAGAIN) return false;
    bool is_whole = length == sizeof message && message.version == BROKER_PROTOCOL_VERSION;
    if (is_whole && message.kind == VMINIT_PONG) {
      if (message.pid == broker->pings) broker->look_at_ms = 0;
      continue;
    }
    bool is_hung = is_whole && message.kind == VMINIT_HUNG;
    if (is_hung && message.pid == (uint32_t)agent) return true;
    /* It is about an earlier agent, which was reaped. */
    if (is_hung) continue;
    if (length != 0) log_line("the broker sent an invalid message");
    /* Reaping handles its end. */
    kill(broker->pid, SIGKILL);
    close_socket(broker);
  }
  return false;
}
