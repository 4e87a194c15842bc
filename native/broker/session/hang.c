#define _GNU_SOURCE
#include "hang.h"

#include <arpa/inet.h>
#include <string.h>

#include "../../init/clock.h"
#include "../../init/log.h"
#include "request-name.h"

/* The time limit for HELLO. It is long, because an agent on an emulated, busy machine takes seconds to start. */
#ifndef HELLO_MS
#define HELLO_MS 60000
#endif

#define PING_PERIOD_MS 1000

#define LOOK_MS 250

/* A check this late does not count, because the whole machine paused or was busy. */
#define LATE_MS 250

#define LOGGED_REQUESTS 20

void hang_want_ping(struct broker *broker) {
  if (broker->hang_ms > 0 && !broker->session.is_hung) broker->session.ping_is_wanted = true;
}

int64_t hang_next_ping_ms(const struct session *session) {
  return session->ping_is_wanted && !session->ping_is_out ? session->last_ping_ms + PING_PERIOD_MS : NEVER;
}

bool hang_is_ping_due(const struct broker *broker, int64_t now_ms) {
  int64_t next = hang_next_ping_ms(&broker->session);
  return next != NEVER && now_ms >= next;
}

static void plan_look(struct broker *broker, int64_t now_ms) {
  struct session *session = &broker->session;
  int64_t left = broker->hang_ms - session->waited_ms;
  session->look_began_ms = now_ms;
  session->look_at_ms = now_ms + (left < LOOK_MS ? left : LOOK_MS);
}

void hang_begin(struct broker *broker) {
  int64_t now_ms = monotonic_ms();
  broker->hang_ms = HELLO_MS;
  broker->session.last_ping_ms = now_ms - PING_PERIOD_MS;
  plan_look(broker, now_ms);
}

void hang_begin_wait(struct broker *broker, int64_t now_ms) {
  if (broker->session.look_at_ms != NEVER) return;
  broker->session.waited_ms = 0;
  plan_look(broker, now_ms);
}

void hang_ping_sent(struct session *session, int64_t now_ms) {
  session->pings++;
  session->last_ping_ms = now_ms;
  session->ping_is_out = true;
  session->ping_is_wanted = false;
}

void hang_got_pong(struct session *session, uint64_t number) {
  if (number != session->pings) return;
  session->ping_is_out = false;
  session->look_at_ms = NEVER;
}

/* Logs the requests' methods, and nothing of their contents. */
static void log_open_requests(const struct broker *broker) {
  int logged = 0;
  struct frame *request;
  TAILQ_FOREACH(request, &broker->requests, of_all) {
    if (logged == LOGGED_REQUESTS) return;
    if (!request->handed) continue;
    uint32_t stream;
    memcpy(&stream, request->head + sizeof stream, sizeof stream);
    char name[REQUEST_NAME_BYTES];
    request_name(request, name);
    log_line("broker: open request %llu: %s, connection %llu, stream %u, for %llu ms",
             (unsigned long long)request->number, name, (unsigned long long)request->connection->id, ntohl(stream),
             (unsigned long long)((boottime_ns() - request->arrived_ns) / 1000000));
    logged++;
  }
}

void hang_look(struct broker *broker, int64_t now_ms) {
  struct session *session = &broker->session;
  if (session->look_at_ms == NEVER || now_ms < session->look_at_ms) return;
  if (now_ms < session->look_at_ms + LATE_MS) session->waited_ms += session->look_at_ms - session->look_began_ms;
  if (session->waited_ms < broker->hang_ms) {
    plan_look(broker, now_ms);
    return;
  }
  log_line("broker: agent %u has not %s for %lld ms", session->pid, session->has_said_hello ? "answered" : "said hello",
           (long long)broker->hang_ms);
  log_open_requests(broker);
  session->look_at_ms = NEVER;
  session->is_hung = true;
  session->ping_is_wanted = false;
  broker->hung_pid = session->pid;
}
