#define _GNU_SOURCE
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../init/clock.h"
#include "../init/log.h"
#include "connection.h"
#include "store/outcomes.h"
#include "watch.h"

#define ACCEPT_PAUSE_MS 100

#define REFUSED_LOG_MS 60000

#define READ_BATCH 32

#define SINK_BYTES 262144

#define PEEKED_BYTES 16384

/* A connection's unsent requests may use a sixth of the budget: 16 MiB of 96. */
#define SHARES 6

union address {
  struct sockaddr any;
  struct sockaddr_vm vsock;
  struct sockaddr_in ip4;
  struct sockaddr_in6 ip6;
  struct sockaddr_un path;
};

/* A dual-stack socket shows an IPv4 address so, too. */
static struct in6_addr mapped(const union address *address) {
  if (address->any.sa_family == AF_INET6) return address->ip6.sin6_addr;
  struct in6_addr ip = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
  if (address->any.sa_family == AF_INET) memcpy(ip.s6_addr + 12, &address->ip4.sin_addr, sizeof address->ip4.sin_addr);
  return ip;
}

static bool is_peer_allowed(const struct broker *broker, const union address *address) {
  if (broker->peer_kind == PEER_TCP && !IN6_IS_ADDR_UNSPECIFIED(&broker->tcp_peer)) {
    struct in6_addr ip = mapped(address);
    return IN6_ARE_ADDR_EQUAL(&ip, &broker->tcp_peer);
  }
  if (broker->peer_kind != PEER_VSOCK) return true;
  if (address->any.sa_family != AF_VSOCK) return false;
  uint32_t cid = address->vsock.svm_cid;
  return cid == VMADDR_CID_HOST || (broker->allow_loopback && cid == VMADDR_CID_LOCAL);
}

static void refuse_peer(struct broker *broker, int client, const struct peer *peer) {
  close(client);
  broker->refused++;
  int64_t now = monotonic_ms();
  if (broker->refused_logged_ms != NEVER && now < broker->refused_logged_ms + REFUSED_LOG_MS) return;
  char cid[sizeof "4294967295"];
  snprintf(cid, sizeof cid, "%u", peer->address.cid);
  bool is_tcp = broker->peer_kind == PEER_TCP;
  log_line("broker: refused %s %s:%u: not the host (connections refused since the last such line: %u)",
           is_tcp ? "tcp" : "vsock", is_tcp ? peer->text : cid, peer->address.port, broker->refused);
  broker->refused_logged_ms = now;
  broker->refused = 0;
}

static struct peer describe_peer(const struct broker *broker, const union address *address) {
  struct peer peer = {.address = {.kind = broker->peer_kind}};
  if (broker->peer_kind == PEER_VSOCK) {
    peer.address.cid = address->vsock.svm_cid;
    peer.address.port = address->vsock.svm_port;
  } else if (broker->peer_kind == PEER_TCP) {
    bool is_ip4 = address->any.sa_family == AF_INET;
    const void *bytes = is_ip4 ? (const void *)&address->ip4.sin_addr : (const void *)&address->ip6.sin6_addr;
    peer.address.port = ntohs(is_ip4 ? address->ip4.sin_port : address->ip6.sin6_port);
    if (inet_ntop(address->any.sa_family, bytes, peer.text, sizeof peer.text) != NULL)
      peer.address.text_bytes = (uint32_t)strlen(peer.text);
  }
  return peer;
}

static bool may_accept_after(struct broker *broker, int error) {
  switch (error) {
    case EAGAIN:
      return false;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
      /* epoll would report the waiting client again at once, so the broker pauses. */
      watch_remove(broker, &broker->listener);
      broker->accept_at_ms = monotonic_ms() + ACCEPT_PAUSE_MS;
      return false;
    case EBADF:
    case EINVAL:
    case ENOTSOCK:
    case EOPNOTSUPP:
      log_line("broker: cannot accept connections: %s", strerror(error));
      watch_close(broker, &broker->listener);
      return false;
    default: /* an error of a connection that is gone, accept(2) */
      return true;
  }
}

void clients_listen(struct broker *broker) {
  broker->accept_at_ms = watch_set(broker, &broker->listener, EPOLLIN) ? NEVER : monotonic_ms() + ACCEPT_PAUSE_MS;
}

void clients_accept(struct broker *broker) {
  for (int i = 0; i < ACCEPT_BATCH && broker->listener.fd >= 0; i++) {
    union address address = {.any.sa_family = AF_UNSPEC};
    socklen_t length = sizeof address;
    int client = accept4(broker->listener.fd, &address.any, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (client < 0) {
      if (!may_accept_after(broker, errno)) return;
      continue;
    }
    /* An answer must not wait for the ACK of the previous one. */
    if (broker->peer_kind == PEER_TCP) setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    struct peer peer = describe_peer(broker, &address);
    if (is_peer_allowed(broker, &address))
      connection_begin(broker, client, &peer);
    else
      refuse_peer(broker, client, &peer);
  }
}

static uint32_t payload_bytes(const unsigned char header[FRAME_HEADER_BYTES]) {
  uint32_t bytes;
  memcpy(&bytes, header, sizeof bytes);
  return ntohl(bytes);
}

/* A frame without room is refused once the agent has taken all before it: waiting would free nothing. */
static bool may_refuse(const struct broker *broker, const struct connection *connection) {
  return broker->session.is_ready && connection->unsent == NULL;
}

static bool may_begin_frame(const struct broker *broker, uint32_t unsent_blocks) {
  return (uint64_t)unsent_blocks * BLOCK_BYTES < broker->budget_bytes / SHARES;
}

bool client_may_read(const struct broker *broker, const struct connection *connection) {
  if (connection->is_closing || connection->is_grpc) return false;
  if (!connection->has_header)
    return connection->header_bytes > 0 || may_begin_frame(broker, connection->unsent_blocks);
  bool has_room = connection_has_room(broker, connection, POOL_REQUESTS, 1);
  if (connection->is_skipping) return connection->payload_left > 0 || has_room;
  const struct frame *request = connection->request;
  if (request == NULL) return has_room || payload_bytes(connection->header) > broker->max_payload_bytes;
  return request->filled < request->capacity || has_room || may_refuse(broker, connection);
}

/* Header, service and method, with room to spare. */
#define NAMED_BYTES 256

/* For bytes that are dropped or go to a file. */
static unsigned char sink[SINK_BYTES];

enum progress { PROGRESS_NONE, PROGRESS_MADE, PROGRESS_FRAME };

static enum progress received(struct broker *broker, struct connection *connection, ssize_t bytes) {
  if (bytes > 0) return PROGRESS_MADE;
  if (bytes == 0)
    connection_hang_up(broker, connection);
  else if (errno != EAGAIN && errno != EINTR)
    connection_lose_client(broker, connection, errno);
  return PROGRESS_NONE;
}

static const unsigned char http2_preface[MAX_FIRST_BYTES] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static bool may_be_grpc(const struct connection *connection) {
  return !connection->is_detected && connection->header_bytes > 0 && connection->header[0] == http2_preface[0];
}

/* ttRPC begins with a frame header. A first frame of 16 MiB or more is HTTP/1, a TLS hello, or text. */
static bool detect(struct broker *broker, struct connection *connection) {
  const unsigned char *header = connection->header;
  if (may_be_grpc(connection)) {
    if (memcmp(header, http2_preface, connection->header_bytes) != 0) return false;
    if (connection->header_bytes < MAX_FIRST_BYTES) return true;
    connection->is_detected = connection->is_grpc = connection->has_called = true;
    broker->session.has_unannounced = true;
    return true;
  }
  if (header[0] != 0) return false;
  if (connection->header_bytes < FRAME_HEADER_BYTES) return true;
  connection->is_detected = true;
  return header[8] >= 1 && header[8] <= 3; /* request, response, data */
}

static enum progress take_header(struct broker *broker, struct connection *connection, uint32_t bytes) {
  connection->header_bytes += bytes;
  if (!connection->is_detected && !detect(broker, connection)) {
    connection_hang_up(broker, connection);
    return PROGRESS_NONE;
  }
  connection->has_header = connection->is_detected && connection->header_bytes >= FRAME_HEADER_BYTES;
  if (connection->has_header)
    connection_set_deadline(broker, connection, NEVER);
  else if (connection->deadline_ms == NEVER)
    connection_set_deadline(broker, connection, monotonic_ms() + broker->first_bytes_ms);
  return PROGRESS_MADE;
}

static enum progress read_header(struct broker *broker, struct connection *connection) {
  uint32_t wanted = may_be_grpc(connection) ? MAX_FIRST_BYTES : FRAME_HEADER_BYTES;
  ssize_t bytes = recv(connection->client.fd, connection->header + connection->header_bytes,
                       wanted - connection->header_bytes, MSG_DONTWAIT);
  if (bytes <= 0) return received(broker, connection, bytes);
  return take_header(broker, connection, (uint32_t)bytes);
}

static enum progress take_request(struct broker *broker, struct connection *connection, struct frame *request) {
  request->number = ++broker->last_number;
  request->arrived_ns = boottime_ns();
  TAILQ_INSERT_TAIL(&connection->requests, request, of_connection);
  TAILQ_INSERT_TAIL(&broker->requests, request, of_all);
  if (connection->unsent == NULL) connection->unsent = request;
  connection->unsent_blocks += request->blocks;
  connection->request = NULL;
  connection->has_header = connection->is_skipping = connection->is_refused = false;
  connection->header_bytes = 0;
  if (!connection->is_announced) broker->session.has_unannounced = true;
  connection->has_called = true;
  return PROGRESS_FRAME;
}

static struct frame *open_request(struct broker *broker, struct connection *connection, uint32_t payload) {
  connection_reserve(broker, connection, POOL_REQUESTS, 1);
  struct frame *request = frame_open(&broker->blocks, connection, FRAME_HEADER_BYTES + payload);
  memcpy(request->head, connection->header, FRAME_HEADER_BYTES);
  request->filled = FRAME_HEADER_BYTES;
  if (request->bytes > FRAME_FILE_BYTES) frame_open_file(request);
  return request;
}

static enum progress begin_request(struct broker *broker, struct connection *connection) {
  uint32_t payload = payload_bytes(connection->header);
  if (payload > broker->max_payload_bytes) {
    connection->is_skipping = true;
    connection->payload_left = payload;
    return PROGRESS_MADE;
  }
  if (!connection_has_room(broker, connection, POOL_REQUESTS, 1)) return PROGRESS_NONE;
  struct frame *request = open_request(broker, connection, payload);
  if (payload == 0) return take_request(broker, connection, request);
  connection->request = request;
  return PROGRESS_MADE;
}

static enum progress skip_payload(struct broker *broker, struct connection *connection) {
  if (connection->payload_left > 0) {
    size_t most = connection->payload_left < SINK_BYTES ? connection->payload_left : SINK_BYTES;
    ssize_t bytes = recv(connection->client.fd, sink, most, MSG_DONTWAIT);
    if (bytes > 0) connection->payload_left -= (uint32_t)bytes;
    return received(broker, connection, bytes);
  }
  if (!connection_has_room(broker, connection, POOL_REQUESTS, 1)) return PROGRESS_NONE;
  struct frame *request = open_request(broker, connection, 0);
  request->header_only = true;
  request->refused = connection->is_refused;
  return take_request(broker, connection, request);
}

/* Skips the rest of a frame that finds no room. */
static void refuse(struct broker *broker, struct connection *connection) {
  struct frame *request = connection->request;
  connection->is_skipping = connection->is_refused = true;
  connection->payload_left = request->bytes - request->filled;
  connection->request = NULL;
  connection_release(broker, request, POOL_REQUESTS);
}

/* Grows with the bytes that have arrived, not with the length that the client claims. */
static bool grow(struct broker *broker, struct connection *connection, struct frame *request) {
  uint32_t wanted = frame_blocks(request->bytes) - request->blocks;
  uint32_t most = request->blocks < SPAN_VECTORS ? request->blocks : SPAN_VECTORS;
  uint32_t added = 0;
  while (added < wanted && added < most && connection_has_room(broker, connection, POOL_REQUESTS, 1)) {
    connection_reserve(broker, connection, POOL_REQUESTS, 1);
    frame_grow(request, &broker->blocks);
    request->blocks++;
    added++;
  }
  return added > 0;
}

/* Returns what recvmsg(2) returns; -1 with errno 0 if the file takes no more. */
static ssize_t read_into_file(struct connection *connection, struct frame *request, uint32_t end) {
  uint32_t most = end - request->filled < SINK_BYTES ? end - request->filled : SINK_BYTES;
  ssize_t bytes = recv(connection->client.fd, sink, most, MSG_DONTWAIT);
  /* A report of a hang takes the method from the head. */
  uint32_t left = request->filled < NAMED_BYTES ? NAMED_BYTES - request->filled : 0;
  if (bytes > 0) memcpy(request->head + request->filled, sink, (uint32_t)bytes < left ? (uint32_t)bytes : left);
  if (bytes <= 0 || pwrite(request->file, sink, (size_t)bytes, request->filled) == bytes) return bytes;
  request->filled += (uint32_t)bytes;
  errno = 0;
  return -1;
}

static ssize_t read_into_blocks(struct connection *connection, struct frame *request, uint32_t end) {
  struct iovec vectors[SPAN_VECTORS];
  struct msghdr message = {.msg_iov = vectors};
  message.msg_iovlen = (size_t)frame_span(request, request->filled, end, vectors);
  return recvmsg(connection->client.fd, &message, MSG_DONTWAIT);
}

static enum progress read_payload(struct broker *broker, struct connection *connection) {
  struct frame *request = connection->request;
  if (request->filled == request->capacity && !grow(broker, connection, request)) {
    if (!may_refuse(broker, connection)) return PROGRESS_NONE;
    refuse(broker, connection);
    return PROGRESS_MADE;
  }
  uint32_t end = request->bytes < request->capacity ? request->bytes : request->capacity;
  ssize_t bytes =
      request->file < 0 ? read_into_blocks(connection, request, end) : read_into_file(connection, request, end);
  if (bytes < 0 && errno == 0) {
    refuse(broker, connection);
    return PROGRESS_MADE;
  }
  if (bytes <= 0) return received(broker, connection, bytes);
  request->filled += (uint32_t)bytes;
  return request->filled < request->bytes ? PROGRESS_MADE : take_request(broker, connection, request);
}

static enum progress read_some(struct broker *broker, struct connection *connection) {
  if (!client_may_read(broker, connection)) return PROGRESS_NONE;
  if (!connection->has_header) return read_header(broker, connection);
  if (connection->is_skipping) return skip_payload(broker, connection);
  if (connection->request == NULL) return begin_request(broker, connection);
  return read_payload(broker, connection);
}

/* Takes the short requests of which all bytes are there. Returns how many bytes they have. */
static uint32_t take_short_requests(struct broker *broker, struct connection *connection, const unsigned char *bytes,
                                    uint32_t count) {
  uint32_t taken = 0;
  for (int i = 0; i < READ_BATCH && count - taken >= FRAME_HEADER_BYTES; i++) {
    const unsigned char *header = bytes + taken;
    const uint32_t payload = payload_bytes(header);
    if (payload > count - taken - FRAME_HEADER_BYTES || payload > HEAD_BYTES - FRAME_HEADER_BYTES) break;
    if (payload > broker->max_payload_bytes || !client_may_read(broker, connection)) break;
    if (!connection_has_room(broker, connection, POOL_REQUESTS, 1)) break;
    memcpy(connection->header, header, FRAME_HEADER_BYTES);
    struct frame *request = open_request(broker, connection, payload);
    memcpy(request->head + FRAME_HEADER_BYTES, header + FRAME_HEADER_BYTES, payload);
    request->filled = request->bytes;
    take_request(broker, connection, request);
    taken += request->bytes;
  }
  return taken;
}

/* Reads short requests with two system calls, not with two for each. Returns false if the next one has to be read alone. */
static bool read_short_requests(struct broker *broker, struct connection *connection) {
  if (!connection->is_detected || connection->header_bytes > 0) return false;
  ssize_t bytes = recv(connection->client.fd, sink, PEEKED_BYTES, MSG_PEEK | MSG_DONTWAIT);
  if (bytes <= 0) return received(broker, connection, bytes) == PROGRESS_NONE;
  uint32_t taken = take_short_requests(broker, connection, sink, (uint32_t)bytes);
  if (taken == 0) return false;
  if (recv(connection->client.fd, sink, taken, MSG_DONTWAIT) != (ssize_t)taken) connection_hang_up(broker, connection);
  return true;
}

void client_read(struct broker *broker, struct connection *connection) {
  bool is_done = read_short_requests(broker, connection);
  for (int i = 0; !is_done && i < READ_BATCH && connection->client.fd >= 0; i++)
    is_done = read_some(broker, connection) != PROGRESS_MADE;
  connection_touch(broker, connection);
}

/* Fills `vectors` with the rest of the first answer, and with short ones behind it. */
static size_t answer_vectors(const struct connection *connection, struct iovec *vectors) {
  struct frame *answer = TAILQ_FIRST(&connection->answers);
  size_t count = (size_t)frame_span(answer, connection->written, answer->bytes, vectors);
  if (answer->bytes > HEAD_BYTES) return count;
  while ((answer = TAILQ_NEXT(answer, of_connection)) != NULL && answer->bytes <= HEAD_BYTES && count < SPAN_VECTORS)
    vectors[count++] = (struct iovec){answer->head, answer->bytes};
  return count;
}

static void written(struct broker *broker, struct connection *connection, uint32_t bytes) {
  while (bytes > 0) {
    uint32_t rest = TAILQ_FIRST(&connection->answers)->bytes - connection->written;
    if (bytes < rest) {
      connection->written += bytes;
      return;
    }
    bytes -= rest;
    connection_settle_answer(broker, connection, REQUEST_WRITTEN);
  }
}

void client_write(struct broker *broker, struct connection *connection) {
  while (!TAILQ_EMPTY(&connection->answers)) {
    struct iovec vectors[SPAN_VECTORS];
    struct msghdr message = {.msg_iov = vectors, .msg_iovlen = answer_vectors(connection, vectors)};
    ssize_t bytes = sendmsg(connection->client.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (bytes < 0) {
      connection_lose_client(broker, connection, errno);
      return;
    }
    written(broker, connection, (uint32_t)bytes);
  }
}
