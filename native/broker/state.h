#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "protocol.h"
#include "store/blocks.h"
#include "store/frame.h"

#define NEVER (-1)

/* Outcomes sent with one request. */
#define OUTCOMES_AT_ONCE 3

enum watch_kind { WATCH_VMINIT, WATCH_LISTENER, WATCH_CONTROL, WATCH_CLIENT, WATCH_DATA };

struct watch {
  int fd;
  uint32_t events;
  bool is_added;
  enum watch_kind kind;
  struct connection *connection;
};

/* The outcome of a request's answer, kept until the agent confirms it. */
struct outcome {
  uint64_t number;
  struct connection *connection; /* sends it over its data socket; NULL: the control socket does */
  TAILQ_ENTRY(outcome) entry;
  enum request_state state;
  int told;                 /* state that the running agent was told, or NEVER */
  bool forgotten_when_told; /* a request without an answer gets no CONFIRM */
};

struct outcomes {
  TAILQ_HEAD(outcome_list, outcome) all;
  struct outcome *unused; /* free list, linked by `entry` */
  struct outcome *table;
  uint32_t capacity;
  uint32_t used; /* entries of the table that were ever used */
};

#define ADDRESS_TEXT_BYTES 46

struct peer {
  struct peer_address address;
  char text[ADDRESS_TEXT_BYTES];
};

/* The preface of HTTP/2. */
#define MAX_FIRST_BYTES 24

/* See leave.h. */
#define KEPT_CLIENTS 64

struct connection {
  uint64_t id; /* 0: unused place */
  struct peer peer;
  struct watch client;
  struct watch data; /* closed until the running agent has the other end */
  bool has_ended;    /* the place becomes unused at the end of the round */
  bool is_detected;  /* the first bytes are of ttRPC or HTTP/2 */
  bool is_grpc;
  bool has_called; /* a whole frame or the preface of HTTP/2 has arrived */
  bool is_announced;
  bool is_closing; /* by CLOSE of the agent */
  bool data_has_ended;
  bool data_is_shut;
  bool is_dirty;
  bool is_held;    /* waits for free memory */
  bool has_untold; /* some of its outcomes may be untold */
  bool must_tell;  /* tell them without a request */
  bool was_lost;   /* tell that the client's connection was reset */
  struct connection *next_dirty;
  int64_t deadline_ms; /* for a frame header or after CLOSE; or NEVER */

  /* From the client. */
  unsigned char header[MAX_FIRST_BYTES];
  uint32_t header_bytes;
  bool has_header;  /* the payload is arriving */
  bool is_skipping; /* the payload is not stored */
  bool is_refused;  /* skipped for lack of room */
  uint32_t payload_left;
  struct frame *request; /* whose payload arrives, or NULL */

  /* To the agent. */
  struct frame_list requests;                     /* open, in the order of arrival */
  struct frame *unsent;                           /* first one not sent whole */
  uint32_t unsent_blocks;                         /* of `unsent` and later ones */
  struct envelope outgoing[OUTCOMES_AT_ONCE + 1]; /* outcomes, then the request */
  uint32_t outgoing_bytes;
  struct frame *sending;  /* the request after `outgoing`, or NULL */
  bool sending_is_orphan; /* its client is gone: it is in no list */
  uint32_t sent, to_send; /* bytes; `to_send` is 0 when idle */

  /* From the agent. */
  struct envelope incoming;
  uint32_t incoming_bytes;
  int file; /* of the answer, or -1 */
  struct frame *answer;
  uint32_t discard; /* bytes to skip of an answer without a client */
  bool awaits_room;

  /* To the client. */
  struct frame_list answers;
  uint32_t written; /* bytes of the first answer */

  uint32_t blocks[POOL_COUNT];
};

struct session {
  struct watch control;
  uint32_t pid;
  bool has_said_hello;
  bool is_ready;   /* READY was sent */
  bool has_untold; /* the control socket may have states to tell */
  bool has_unannounced;
  bool control_is_full;
  bool has_unsent_file;   /* a data socket waits until the control socket takes the file of its request */
  int64_t announce_at_ms; /* of the next try after a failure, or NEVER */
  bool has_warned;        /* about an answer to an unknown number */
  bool is_hung;           /* vminit was told */
  const char *fault;      /* how the agent broke the protocol on a data socket, or NULL */
  uint64_t pings;
  bool ping_is_out;
  bool ping_is_wanted;
  int64_t last_ping_ms;
  int64_t look_at_ms; /* next check for HELLO or the PONG, or NEVER */
  int64_t look_began_ms;
  int64_t waited_ms;
};

struct broker {
  int epoll;
  struct watch vminit;
  struct watch listener;
  uint32_t peer_kind;
  bool allow_loopback;
  struct in6_addr tcp_peer; /* see struct hello */
  bool is_stopped;          /* by CONTROL_STOP */
  int kept[KEPT_CLIENTS];
  uint32_t kept_count;
  int64_t accept_at_ms; /* after a failure, or NEVER */
  uint32_t refused;     /* since the last line about them */
  int64_t refused_logged_ms;
  uint32_t hung_pid;    /* to report to vminit, or 0 */
  uint32_t vminit_ping; /* unanswered ping, or 0 */
  struct session session;

  /* From the first HELLO. */
  uint32_t max_connections;
  uint64_t budget_bytes;
  struct connection *connections;
  uint32_t places;
  struct blocks blocks;
  /* From the last HELLO. */
  uint32_t max_payload_bytes;
  int64_t first_bytes_ms;
  int64_t hang_ms; /* until HELLO the limit for HELLO itself; 0: an agent never counts as hung */

  uint32_t open_connections;
  uint64_t last_connection_id;
  uint64_t last_number;
  struct frame_list requests;
  struct outcomes outcomes;
  struct connection *dirty;
  uint32_t held_connections;
  uint64_t released; /* blocks.released as of the last round */
  int64_t next_deadline_ms;
  int64_t tell_at_ms; /* when outcomes are told without a request, or NEVER */
  int64_t trim_at_ms;
};
