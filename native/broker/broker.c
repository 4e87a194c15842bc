#define _GNU_SOURCE
#include "broker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "../init/clock.h"
#include "../init/log.h"
#include "../process/message.h"
#include "client.h"
#include "connection.h"
#include "data-socket.h"
#include "leave.h"
#include "session/session.h"
#include "watch.h"

#define EVENTS 64

/* The agent's priority, because the agent waits for the broker. */
#define NICE (-10)

/* A request number is the broker's start time, which makes it unique among brokers, and a counter. */
#define START_BITS 24
#define RUNNING_BITS 40
#define START_UNIT_NS 64000000ull

/* More unused pages than these are returned to the kernel after TRIM_MS. */
#define KEPT_PAGES 64
#define TRIM_MS 1000

static noreturn void on_vminit_end(void) {
  exit(EXIT_SUCCESS);
}

/* Only vminit ends the broker, because the agent needs it to stop in order. */
static void ignore_signals(void) {
  static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2};
  for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
}

/* Locks the program in memory and exempts it from the OOM killer. Stored frames may be swapped. */
static void protect(void) {
  if (mlockall(MCL_CURRENT | MCL_ONFAULT) != 0) log_line("broker: not kept in memory: %s", strerror(errno));
  setpriority(PRIO_PROCESS, 0, NICE);
  int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  if (write(fd, "-1000", 5) < 0 && errno != EACCES) log_line("broker: oom_score_adj: %s", strerror(errno));
  close(fd);
}

static void read_vminit(struct broker *broker) {
  struct vminit_message message;
  int passed;
  ssize_t length = message_receive(broker->vminit.fd, &message, sizeof message, &passed);
  if (length < 0 && (errno == EAGAIN || errno == EINTR || errno == EMSGSIZE)) return;
  if (length <= 0) on_vminit_end();
  if (length == sizeof message && message.version == BROKER_PROTOCOL_VERSION && message.kind == VMINIT_AGENT &&
      passed >= 0) {
    session_begin(broker, passed, message.pid);
    return;
  }
  if (length == sizeof message && message.version == BROKER_PROTOCOL_VERSION && message.kind == VMINIT_PING &&
      passed < 0) {
    broker->vminit_ping = message.pid;
    return;
  }
  if (length == sizeof message && message.version == BROKER_PROTOCOL_VERSION && message.kind == VMINIT_LEAVE &&
      passed < 0) {
    leave_clients(broker, (int)message.pid);
    message_send(broker->vminit.fd, &message, sizeof message, -1);
    return;
  }
  log_line("broker: ignored an unknown message of vminit");
  if (passed >= 0) close(passed);
}

/* Sends a message about `*what`, unless it is 0. Sets it to 0 once the message is sent. */
static void tell_vminit_of(struct broker *broker, uint32_t kind, uint32_t *what) {
  const struct vminit_message message = {.version = BROKER_PROTOCOL_VERSION, .kind = kind, .pid = *what};
  if (*what != 0 && message_send(broker->vminit.fd, &message, sizeof message, -1) >= 0) *what = 0;
}

static void tell_vminit(struct broker *broker) {
  tell_vminit_of(broker, VMINIT_HUNG, &broker->hung_pid);
  tell_vminit_of(broker, VMINIT_PONG, &broker->vminit_ping);
  bool is_told = broker->hung_pid == 0 && broker->vminit_ping == 0;
  watch_set(broker, &broker->vminit, is_told ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

static void on_client_event(struct broker *broker, struct connection *connection, uint32_t events) {
  /* While the client is not read, only these events report its end. */
  if ((events & (EPOLLIN | EPOLLOUT)) == 0 || (connection->client.events & EPOLLIN) == 0) {
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) connection_lose_client(broker, connection, 0);
  }
  if (events & EPOLLIN) client_read(broker, connection);
  connection_touch(broker, connection);
}

static void on_event(struct broker *broker, const struct watch *watch, uint32_t events) {
  /* An earlier event of the round has closed the descriptor. */
  if (watch->fd < 0 || !watch->is_added) return;
  switch (watch->kind) {
    case WATCH_VMINIT:
      if (events & ~EPOLLOUT) read_vminit(broker);
      return;
    case WATCH_LISTENER:
      clients_accept(broker);
      return;
    case WATCH_CONTROL:
      if (events & EPOLLOUT) broker->session.control_is_full = false;
      if (events & ~EPOLLOUT) session_read(broker);
      return;
    case WATCH_CLIENT:
      on_client_event(broker, watch->connection, events);
      return;
    case WATCH_DATA:
      if (events & ~EPOLLOUT) data_read(broker, watch->connection);
      connection_touch(broker, watch->connection);
      return;
  }
}

/* Whether everything that the agent sent before CLOSE is written. */
static bool may_close(const struct connection *connection) {
  if (!connection->is_closing || connection->client.fd < 0 || !TAILQ_EMPTY(&connection->answers)) return false;
  return connection->answer == NULL && !connection->awaits_room && data_is_empty(connection);
}

static void set_held(struct broker *broker, struct connection *connection, bool is_held) {
  if (connection->is_held == is_held) return;
  connection->is_held = is_held;
  broker->held_connections += is_held ? 1 : -1;
}

/* Ends a connection that cannot be watched, because its events would be lost. */
static void watch_or_end(struct broker *broker, struct connection *connection, struct watch *watch, uint32_t events) {
  if (watch_set(broker, watch, events)) return;
  log_line("broker: connection %llu: cannot be waited for: %s", (unsigned long long)connection->id, strerror(errno));
  connection_hang_up(broker, connection);
  connection_end(broker, connection);
}

static void wait_for_events(struct broker *broker, struct connection *connection) {
  bool is_held = false;
  if (connection->client.fd >= 0) {
    bool may_read = client_may_read(broker, connection);
    is_held = !may_read;
    /* EPOLLRDHUP reports the client's end while it is not read. */
    uint32_t events = may_read ? EPOLLIN : EPOLLRDHUP;
    if (!TAILQ_EMPTY(&connection->answers)) events |= EPOLLOUT;
    watch_or_end(broker, connection, &connection->client, events);
  }
  if (connection->data.fd >= 0) {
    bool awaits_room = connection->awaits_room && !data_has_room(broker, connection);
    is_held |= awaits_room;
    uint32_t events = awaits_room || connection->data_has_ended ? 0 : EPOLLIN;
    if (connection->to_send > 0 && !connection->data_is_shut) events |= EPOLLOUT;
    /* epoll reports a hang-up again and again, whatever the events. */
    if (events == 0)
      watch_remove(broker, &connection->data);
    else
      watch_or_end(broker, connection, &connection->data, events);
  }
  set_held(broker, connection, is_held);
}

static void flush(struct broker *broker, struct connection *connection) {
  client_write(broker, connection);
  if (may_close(connection)) {
    leave_keep(broker, connection);
    connection_hang_up(broker, connection);
  }
  data_send(broker, connection);
  if (!connection->has_ended) {
    wait_for_events(broker, connection);
    return;
  }
  set_held(broker, connection, false);
  connection->id = 0;
}

/* Memory is free again: resumes the connections that wait for it, also where no further byte will come. */
static void release_held(struct broker *broker) {
  for (uint32_t i = 0; i < broker->places; i++)
    if (broker->connections[i].id != 0 && broker->connections[i].is_held) client_read(broker, &broker->connections[i]);
}

static void flush_connections(struct broker *broker) {
  for (struct connection *connection; (connection = broker->dirty) != NULL;) {
    broker->dirty = connection->next_dirty;
    connection->is_dirty = false;
    flush(broker, connection);
  }
  bool has_released = broker->released != broker->blocks.released;
  broker->released = broker->blocks.released;
  if (has_released && broker->held_connections > 0) release_held(broker);
}

static void plan_trim(struct broker *broker) {
  if (broker->blocks.idle_pages <= KEPT_PAGES)
    broker->trim_at_ms = NEVER;
  else if (broker->trim_at_ms == NEVER)
    broker->trim_at_ms = monotonic_ms() + TRIM_MS;
}

static void run_expired_timers(struct broker *broker) {
  int64_t now = monotonic_ms();
  session_expire(broker, now);
  connections_expire(broker, now);
  connections_tell(broker, now);
  if (broker->accept_at_ms != NEVER && now >= broker->accept_at_ms) {
    clients_listen(broker);
  }
  if (broker->trim_at_ms != NEVER && now >= broker->trim_at_ms) {
    broker->trim_at_ms = NEVER;
    blocks_trim(&broker->blocks);
  }
}

static int wait_ms(const struct broker *broker) {
  if (broker->dirty != NULL) return 0;
  const int64_t times[] = {broker->accept_at_ms, broker->trim_at_ms, broker->next_deadline_ms, broker->tell_at_ms,
                           session_next_ms(broker)};
  int64_t next = NEVER;
  for (size_t i = 0; i < sizeof times / sizeof *times; i++)
    if (times[i] != NEVER && (next == NEVER || times[i] < next)) next = times[i];
  if (next == NEVER) return -1;
  int64_t wait = next - monotonic_ms();
  return wait > 0 ? (int)wait : 0;
}

static void begin(struct broker *broker, int vminit_fd) {
  prctl(PR_SET_NAME, "api-broker");
  ignore_signals();
  protect();
  fcntl(vminit_fd, F_SETFD, FD_CLOEXEC);
  *broker = (struct broker){
      .epoll = epoll_create1(EPOLL_CLOEXEC),
      .vminit = {.fd = vminit_fd, .kind = WATCH_VMINIT},
      .listener = {.fd = -1, .kind = WATCH_LISTENER},
      .accept_at_ms = NEVER,
      .refused_logged_ms = NEVER,
      .session.control.fd = -1,
      .next_deadline_ms = NEVER,
      .tell_at_ms = NEVER,
      .trim_at_ms = NEVER,
  };
  TAILQ_INIT(&broker->requests);
  TAILQ_INIT(&broker->outcomes.all);
  uint64_t start = boottime_ns() / START_UNIT_NS & ((1u << START_BITS) - 1);
  broker->last_number = start << RUNNING_BITS;
  if (!watch_set(broker, &broker->vminit, EPOLLIN)) {
    log_line("broker: cannot begin: %s", strerror(errno));
    exit(EXIT_FAILURE);
  }
}

noreturn void broker_run(int vminit_fd) {
  static struct broker broker;
  begin(&broker, vminit_fd);
  for (;;) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(broker.epoll, events, EVENTS, wait_ms(&broker));
    for (int i = 0; i < count; i++) on_event(&broker, events[i].data.ptr, events[i].events);
    run_expired_timers(&broker);
    session_flush(&broker);
    flush_connections(&broker);
    /* Again, because sent requests need a PING and ended connections leave outcomes to tell. */
    session_flush(&broker);
    tell_vminit(&broker);
    plan_trim(&broker);
  }
}
