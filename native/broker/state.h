#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "protocol.h"
#include "store/blocks.h"
#include "store/frame.h"

#define NEVER (-1)

/* The most outcomes that go to the agent with one request. */
#define OUTCOMES_AT_ONCE 3

/* A descriptor in the epoll set. */
enum watch_kind { WATCH_VMINIT, WATCH_LISTENER, WATCH_CONTROL, WATCH_CLIENT, WATCH_DATA };

struct watch {
  int fd;
  uint32_t events; /* as epoll has them */
  bool is_added;
  enum watch_kind kind;
  struct connection *connection;
};

/* What an agent is told about the answer to one request, until it confirms. */
struct outcome {
  uint64_t number;
  struct connection *connection; /* whose data socket tells it; NULL: the control socket does */
  TAILQ_ENTRY(outcome) entry;
  enum request_state state;
  int told;                 /* the state that the present agent was told, or NEVER */
  bool forgotten_when_told; /* of a request without an answer: no CONFIRM follows */
};

struct outcomes {
  TAILQ_HEAD(outcome_list, outcome) all; /* the oldest first */
  struct outcome *unused;                /* once used, and linked by `entry` */
  struct outcome *table;
  uint32_t capacity;
  uint32_t used; /* places of the table that were used once */
};

#define ADDRESS_TEXT_BYTES 46

struct peer {
  struct peer_address address; /* `text_bytes` of `text` */
  char text[ADDRESS_TEXT_BYTES];
};

/* The longest detection: the preface of HTTP/2. */
#define MAX_FIRST_BYTES 24

/* The most clients whose connections are kept for the end of the machine. */
#define KEPT_CLIENTS 64

/* A client that was accepted. */
struct connection {
  uint64_t id; /* 0: this place is unused */
  struct peer peer;
  struct watch client; /* closed when the client has hung up */
  struct watch data;   /* the broker's end of the data socket; closed until the present agent has the other one */
  bool has_ended;      /* nothing of it is left: the place becomes unused at the end of the round */
  bool is_detected;    /* the first bytes were those of a ttRPC frame or of HTTP/2 */
  bool is_grpc;
  bool has_called;     /* a whole frame has arrived, or the preface of HTTP/2 */
  bool is_announced;   /* the present agent has got it */
  bool is_closing;     /* the agent has sent CLOSE */
  bool data_has_ended; /* the agent has closed its end */
  bool data_is_shut;   /* nothing more is sent to the agent */
  bool is_dirty;       /* in the list of connections that this round has changed */
  bool is_held;        /* a byte limit stops it: it goes on when room becomes free */
  bool has_untold;     /* of its outcomes, some may not be told yet */
  bool must_tell;      /* they have waited long enough for a request to go with */
  struct connection *next_dirty;
  int64_t deadline_ms; /* for a frame header, or for a client that is to be closed; NEVER */

  /* From the client. */
  unsigned char header[MAX_FIRST_BYTES];
  uint32_t header_bytes;
  bool has_header;       /* the payload is arriving */
  bool is_skipping;      /* the payload is not stored */
  bool is_refused;       /* because there is no room, not because it is too large */
  uint32_t payload_left; /* of a payload that is skipped */
  struct frame *request; /* whose payload arrives; NULL before its first block, and while it is skipped */

  /* To the agent. */
  struct frame_list requests; /* open ones, in the order of their arrival */
  struct frame *unsent;       /* the first that was not sent whole; the rest of the list was not either */
  uint32_t unsent_blocks;     /* of all these */
  struct envelope outgoing[OUTCOMES_AT_ONCE + 1]; /* of outcomes, and then of the request */
  uint32_t outgoing_bytes;
  struct frame *sending;  /* the request, which follows `outgoing`; NULL when there are outcomes alone */
  bool sending_is_orphan; /* its client has hung up: it is in no list */
  uint32_t sent, to_send; /* bytes of both; `to_send` is 0 when nothing is under way */

  /* From the agent. */
  struct envelope incoming;
  uint32_t incoming_bytes; /* of the envelope: when whole, its frame arrives, or it waits for room */
  int file;                /* of that envelope; -1 without one */
  struct frame *answer;    /* whose bytes arrive */
  uint32_t discard;        /* bytes of an answer that has no client */
  bool awaits_room;

  /* To the client. */
  struct frame_list answers;
  uint32_t written; /* bytes of the first */

  uint32_t blocks[POOL_COUNT]; /* reserved */
};

/* The present agent. */
struct session {
  struct watch control;
  uint32_t pid;
  bool has_said_hello;
  bool is_ready;   /* READY was sent */
  bool has_untold; /* of the outcomes and requests that the control socket tells, some may not be told yet */
  bool has_unannounced;
  bool control_is_full;
  int64_t announce_at_ms; /* after a failure; NEVER */
  bool has_warned;        /* about an answer to an unknown number */
  bool is_hung;           /* vminit was told */
  const char *fault;      /* how it has broken the protocol over a data socket; NULL: it has not */
  uint64_t pings;         /* the number of the last PING */
  bool ping_is_out;       /* no PONG came yet */
  bool ping_is_wanted;
  int64_t last_ping_ms;
  int64_t look_at_ms; /* when the wait for a PONG is counted next; NEVER: no PING is out */
  int64_t look_began_ms;
  int64_t waited_ms; /* as counted so far */
};

struct broker {
  int epoll;
  struct watch vminit;
  struct watch listener;
  uint32_t peer_kind; /* of the listener's clients */
  bool allow_loopback;
  bool is_stopped;        /* by STOP */
  int kept[KEPT_CLIENTS]; /* connections of clients that were closed since, see leave.h */
  uint32_t kept_count;
  int64_t accept_at_ms;      /* after a failure; NEVER */
  uint32_t refused;          /* clients since the last line about them */
  int64_t refused_logged_ms; /* NEVER: there was none */
  uint32_t hung_pid;         /* to be told to vminit; 0 for none */
  uint32_t vminit_ping;      /* the number of vminit's ping that is not answered yet, or 0 */
  struct session session;

  /* Of the first HELLO. */
  uint32_t max_connections;
  uint64_t budget_bytes;
  struct connection *connections; /* a table of `places`; NULL before the first HELLO */
  uint32_t places;
  struct blocks blocks;
  /* Of the last HELLO. */
  uint32_t max_payload_bytes;
  int64_t first_bytes_ms;
  int64_t hang_ms; /* 0: an agent never counts as hung */

  uint32_t open_connections;
  uint64_t last_connection_id;
  uint64_t last_number;
  struct frame_list requests; /* all open ones */
  struct outcomes outcomes;
  struct connection *dirty;
  uint32_t held_connections;
  uint64_t released;        /* blocks.released as of the last round */
  int64_t next_deadline_ms; /* no deadline of a connection is earlier */
  int64_t tell_at_ms;       /* outcomes that wait for a request are told without one; NEVER */
  int64_t trim_at_ms;
};
