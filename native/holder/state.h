#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "../process/message.h"
#include "limits.h"

#define NEVER (-1)

/* What an event of epoll is about; the low half of its data is an index. */
enum subject {
  SUBJECT_LISTENER,
  SUBJECT_SIGNALS,
  SUBJECT_CONNECTION,
  SUBJECT_PEER,
  SUBJECT_PORT,
  SUBJECT_LOG,
  SUBJECT_LEASE,
  SUBJECT_RELAY
};

struct watch {
  int fd; /* or -1 */
  uint32_t events;
  bool is_added;
};

struct ring {
  bool is_used;
  bool is_closed; /* nothing more comes */
  uint32_t number;
  uint32_t capacity;
  int file;
  struct watch peer; /* a socket: the console of a child, or the one that connected to the port */
  struct watch port; /* listens for the peer */
  uint64_t base;     /* bytes before it are lost */
  uint64_t end;
  int64_t wait_since_ms; /* since when the peer is not read for clients that lag, or NEVER */
  int32_t waited_ms;     /* in this revolution */
};

enum connection_mode {
  CONNECTION_UNUSED,
  CONNECTION_COMMANDS,
  CONNECTION_LISTS_RINGS,
  CONNECTION_ATTACHED,
  CONNECTION_CLOSED, /* unused from the end of the round on */
};

struct connection {
  struct watch socket;
  enum connection_mode mode;
  bool wants_exits;
  bool is_leash;    /* its end is the holder's end */
  bool is_full;     /* the client has to read first */
  bool input_waits; /* for the ring's peer to read */
  bool input_ended;
  uint32_t ring;      /* index */
  uint32_t next_ring; /* of a listing */
  uint64_t offset;    /* of the next byte to send */
};

/* What comes next from a server of NBD. */
enum relay_stage { RELAY_GREETING, RELAY_REPLY, RELAY_RECORDS, RELAY_PLAIN };

struct relay {
  bool is_used;
  struct watch near; /* QEMU has the other end */
  struct watch wire;
  enum relay_stage stage;
  unsigned char held[RECORD_BYTES_MAX]; /* from the wire */
  size_t length;
  size_t admitted; /* of them, QEMU gets so many */
  bool has_told_end;
};

struct child {
  char name[NAME_BYTES_MAX + 1]; /* empty: unused */
  pid_t pid;                     /* in this namespace; 0: ended */
  pid_t outer_pid;               /* where /proc is of, which is the daemon's namespace */
  int status;
  uint64_t ended; /* order of the ends */
  struct watch log;
  int log_file;
  off_t log_bytes;
};

struct holder {
  int epoll;
  int signals;
  struct watch listener;
  bool accepts_later; /* for lack of descriptors: once one is closed, or after a while */
  bool has_closed;    /* connections of this round */
  bool may_reap;
  pid_t outer_pid;
  unsigned long long start_time;
  uint64_t ends;
  int exits_file;
  int memory; /* a sealed memory file, or -1 */
  struct watch lease_timer;
  uint64_t lease_until_ns; /* of CLOCK_BOOTTIME; 0 without a lease */
  bool lease_has_ended;
  uint32_t clients;
  uint32_t connections_used; /* all later entries are unused */
  uint32_t rings_used;
  uint32_t rings_waiting;
  struct child children[CHILDREN_MAX];
  struct ring rings[RINGS_MAX];
  struct connection connections[CONNECTIONS_MAX];
  struct relay relays[RELAYS_MAX];
  char chunk[CHUNK_BYTES];
  char line[LINE_BYTES_MAX + 1];
  struct passed passed; /* with the line */
  char *words[WORDS_MAX + 1];
};
