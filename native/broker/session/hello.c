#define _GNU_SOURCE
#include "hello.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../init/log.h"
#include "../client.h"
#include "../connection.h"
#include "../leave.h"
#include "../store/outcomes.h"
#include "../watch.h"

#define MAX_CONNECTIONS 4096
#define MAX_BUDGET_BYTES (1024ull * 1024 * 1024)
#define MAX_PAYLOAD_BYTES (64u * 1024 * 1024)
#define MAX_TIME_MS 604800000u /* a week */

/* Outcomes that agents have not confirmed, beyond those of the stored answers. */
#define UNCONFIRMED_OUTCOMES 4096

/* epoll, vminit, control and listening socket, standard streams, descriptors in messages. */
#define OWN_DESCRIPTORS 32

static bool get_option(int fd, int option, int *value) {
  socklen_t length = sizeof *value;
  return getsockopt(fd, SOL_SOCKET, option, value, &length) == 0;
}

/* Returns -1 for anything but a listening stream socket. */
static int peer_kind_of(int listener) {
  int domain, type, listens;
  if (!get_option(listener, SO_DOMAIN, &domain) || !get_option(listener, SO_TYPE, &type)) return -1;
  if (!get_option(listener, SO_ACCEPTCONN, &listens) || type != SOCK_STREAM || !listens) return -1;
  switch (domain) {
    case AF_UNIX:
      return PEER_UNIX;
    case AF_VSOCK:
      return PEER_VSOCK;
    case AF_INET:
    case AF_INET6:
      return PEER_TCP;
    default:
      return -1;
  }
}

/* Whether a pool has room for the largest frame beside its reserve. The first agent's budget applies. */
static bool has_room_for_frame(const struct broker *broker, const struct hello *hello) {
  uint64_t budget = broker->connections == NULL ? hello->budget_bytes : broker->budget_bytes;
  uint32_t limit = (uint32_t)(budget / BLOCK_BYTES / POOL_COUNT);
  return frame_blocks(FRAME_HEADER_BYTES + hello->max_payload_bytes) <= limit - limit / 8;
}

static const char *check(const struct broker *broker, const struct control_header *header, const struct hello *hello,
                         int peer_kind) {
  if (header->a != BROKER_PROTOCOL_VERSION) return "said hello in another version of the protocol";
  if (peer_kind < 0) return "said hello without a listening stream socket";
  if ((header->flags & ~HELLO_ALLOW_LOOPBACK) != 0) return "said hello with an unknown flag";
  if (hello->max_connections == 0 || hello->max_connections > MAX_CONNECTIONS)
    return "said hello with a wrong number of connections, want 1 to 4096";
  if (header->b > MAX_TIME_MS || hello->first_bytes_ms > MAX_TIME_MS) return "said hello with a time of over a week";
  if (hello->budget_bytes > MAX_BUDGET_BYTES) return "said hello with a budget of over 1 GiB";
  if (hello->max_payload_bytes > MAX_PAYLOAD_BYTES || !has_room_for_frame(broker, hello))
    return "said hello with a budget that has no room for its largest frame";
  return NULL;
}

/* The client's socket, the broker's end of the data socket, and the files of an answer and of a request that arrives. */
#define PLACE_DESCRIPTORS 4

static uint32_t raise_descriptor_limit(uint32_t connections, uint32_t files) {
  struct rlimit limit;
  const rlim_t wanted = PLACE_DESCRIPTORS * ((rlim_t)connections + ACCEPT_BATCH) + OWN_DESCRIPTORS + files;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return connections;
  struct rlimit raised = {.rlim_cur = wanted, .rlim_max = limit.rlim_max > wanted ? limit.rlim_max : wanted};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) return connections;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t others = PLACE_DESCRIPTORS * ACCEPT_BATCH + OWN_DESCRIPTORS + files;
  uint32_t possible = limit.rlim_cur > others ? (uint32_t)(limit.rlim_cur - others) / PLACE_DESCRIPTORS : 1;
  log_line("broker: at most %u connections, not %u: no more descriptors", possible, connections);
  return possible < connections ? possible : connections;
}

/* Reserves address space for everything that the broker can store. Unused pages take no memory. */
static bool open_tables(struct broker *broker, const struct hello *hello) {
  if (!blocks_open(&broker->blocks, hello->budget_bytes)) return false;
  uint32_t count = broker->blocks.pool_limit + UNCONFIRMED_OUTCOMES;
  void *outcomes = mmap(NULL, count * sizeof(struct outcome), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (outcomes == MAP_FAILED) return false;
  outcomes_prepare(&broker->outcomes, outcomes, count);
  broker->budget_bytes = hello->budget_bytes;
  uint32_t files = broker->blocks.pool_limit / (FRAME_FILE_BYTES / BLOCK_BYTES);
  return connections_open(broker, raise_descriptor_limit(hello->max_connections, files));
}

static const char *take(struct broker *broker, const struct control_header *header, const struct hello *hello,
                        int listener) {
  int kind = peer_kind_of(listener);
  const char *fault = check(broker, header, hello, kind);
  if (fault != NULL) return fault;
  if (broker->connections == NULL && !open_tables(broker, hello)) return "asks for more memory than there is";
  fcntl(listener, F_SETFL, fcntl(listener, F_GETFL) | O_NONBLOCK);
  watch_close(broker, &broker->listener);
  broker->listener.fd = listener;
  broker->peer_kind = (uint32_t)kind;
  broker->allow_loopback = (header->flags & HELLO_ALLOW_LOOPBACK) != 0;
  memcpy(&broker->tcp_peer, hello->tcp_peer, sizeof broker->tcp_peer);
  broker->is_stopped = false;
  leave_undo(broker);
  broker->max_payload_bytes = hello->max_payload_bytes;
  broker->first_bytes_ms = hello->first_bytes_ms;
  broker->hang_ms = (int64_t)header->b;
  clients_listen(broker);
  return NULL;
}

const char *hello_accept(struct broker *broker, const struct control_header *header, const struct hello *hello,
                         int listener) {
  const char *fault = take(broker, header, hello, listener);
  if (fault != NULL && listener >= 0) close(listener);
  return fault;
}
