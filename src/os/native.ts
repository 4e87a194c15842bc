import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { AgentError } from '../base/errors.ts'
import { fromNodeError } from './errors.ts'
import type { Fd, RelayTail } from './streams/streams.ts'

/**
 * The addon (native/addon): system calls, readiness of descriptors, and the relay thread. It makes no decisions of its
 * own. A result below zero is -errno; every new descriptor is O_CLOEXEC.
 */
export interface Native {
  /** pipe2(2). Returns the reading and the writing end, both blocking. */
  pipe(): readonly [Fd, Fd] | number
  /** Opens a pty: the master, which does not block, and the other side, which is no controlling terminal yet. */
  pty(): readonly [Fd, Fd] | number
  /** F_GETPIPE_SZ; -EBADF when `fd` is not a pipe. */
  pipeSize(fd: Fd): number
  /** F_SETPIPE_SZ, which can also shrink a pipe. Returns the new size. */
  setPipeSize(fd: Fd, sizeBytes: number): number
  setNonBlocking(fd: Fd, nonBlocking: boolean): number
  duplicate(fd: Fd): Fd
  /** One read(2). Reads at most 64 KiB when the kernel cannot tell in advance how much is there; empty at EOF. */
  read(fd: Fd, maxBytes: number): Buffer | number
  /** One write(2). */
  write(fd: Fd, data: Uint8Array): number
  /** close(2); -EBUSY while the descriptor is watched. */
  close(fd: Fd): number

  /** FIONREAD: how many bytes wait to be read. */
  readableBytes(fd: Fd): number
  /** memfd_create(2). */
  memoryFile(name: string): Fd
  /** One splice(2) that never waits for a pipe, between the positions of both: the bytes moved, 0 at EOF. */
  splice(source: Fd, target: Fd, maxBytes: number): number
  /** One pread(2), of up to `maxBytes`. */
  readAt(fd: Fd, offset: number, maxBytes: number): Buffer | number
  /** One pwrite(2). */
  writeAt(fd: Fd, offset: number, data: Uint8Array): number
  /** lseek(2) by nothing. */
  positionOf(fd: Fd): number
  /** lseek(2) to an offset. */
  setPosition(fd: Fd, offset: number): number
  /** ftruncate(2). */
  truncate(fd: Fd, sizeBytes: number): number
  /** fallocate(2): gives the memory of a part back. The file keeps its size. */
  punchHole(fd: Fd, offset: number, bytes: number): number

  /** Opens a non-blocking eventfd(2) with the value 0. */
  eventFd(): Fd
  /** Opens a blocking AF_UNIX stream pair. */
  socketPair(): readonly [Fd, Fd] | number
  /** Opens a blocking AF_UNIX pair that keeps the bounds of messages (SOCK_SEQPACKET). */
  messagePair(): readonly [Fd, Fd] | number
  /** Opens a non-blocking listening AF_VSOCK socket; cid 4294967295 is any. */
  vsockListen(cid: number, port: number, backlog: number): Fd
  /** Opens a non-blocking AF_VSOCK stream socket, which connects for at most `timeoutMs`. */
  vsockSocket(timeoutMs: number): Fd
  /**
   * Begins to connect a non-blocking AF_VSOCK socket, or goes on with it. Returns 0 or -errno. When it is writable,
   * `socketError` returns the outcome: ETIMEDOUT after its time.
   */
  vsockConnect(cid: number, port: number, fd: Fd): number
  vsockPeer(fd: Fd): { readonly cid: number; readonly port: number } | number
  /**
   * Opens a non-blocking NETLINK_ROUTE socket with extended acknowledgements. The kernel has answered a request when
   * its `write` returns; `read` returns the answers.
   */
  netlinkRoute(): Fd
  /** SO_ERROR: 0 or -errno. */
  socketError(fd: Fd): number
  /** Opens a non-blocking listening AF_UNIX stream socket at a path, or at `@NAME` in the abstract namespace. */
  unixListen(path: string, backlog: number): Fd
  /** Opens a non-blocking AF_UNIX stream socket. */
  unixSocket(): Fd
  /** Connects it to such an address, unless it is. Returns 0 or -errno: -EAGAIN when the listener's queue is full. */
  unixConnect(path: string, fd: Fd): number
  /** The path that the peer of an AF_UNIX socket is bound to, empty when it has none. */
  unixPeer(fd: Fd): string | number
  /** accept4(2). Returns a non-blocking socket. */
  accept(fd: Fd): Fd
  /** Opens a non-blocking NETLINK_KOBJECT_UEVENT socket in the kernel's group, with a receive buffer of this size. */
  ueventListen(receiveBufferBytes: number): Fd
  /**
   * recvmmsg(2). Returns the next few events as text, each ended by two NULs; -EAGAIN when there are none. Drops events of
   * senders other than the kernel. Bytes that are not UTF-8 become U+FFFD.
   */
  ueventReceive(fd: Fd): string | number
  /** recvmsg(2). Returns the one descriptor of an SCM_RIGHTS message; -ENODATA when it has none. */
  receiveFd(fd: Fd): Fd
  /** sendmsg(2). Sends bytes with a descriptor (SCM_RIGHTS), which stays open here. Returns how many were sent. */
  sendFd(fd: Fd, data: Uint8Array, passed: Fd): number
  /**
   * One recvmsg(2): a message with its descriptors, which the caller owns; `data` is empty at EOF. -EMSGSIZE for a message
   * of more than `maxBytes`, which is lost, with its descriptors closed; -EINVAL when `maxBytes` is more than 64 KiB.
   */
  recvMessage(fd: Fd, maxBytes: number): ReceivedMessage | number
  /** One sendmsg(2): a message, with a descriptor if one is given, which stays open here. Returns the bytes sent. */
  sendMessage(fd: Fd, data: Uint8Array, passed?: Fd): number

  /**
   * mount(2), on a thread of libuv's pool because it may wait for a disk. With `refuseLinks`, -ELOOP for a symbolic link on
   * the way to the target.
   */
  mount(
    source: string,
    target: string,
    type: string,
    flags: number,
    data: string,
    refuseLinks: boolean,
  ): Promise<number>
  /**
   * A new mount by fsopen(2), fsconfig(2) for each setting (`key=value`, or `key`), fsmount(2) with MOUNT_ATTR_ constants
   * and move_mount(2), on a thread of the pool. With `refuseLinks` as `mount`.
   */
  mountBySettings(
    source: string,
    target: string,
    type: string,
    attributes: number,
    settings: readonly string[],
    refuseLinks: boolean,
  ): Promise<number>
  /** umount2(2), on a thread of the pool. */
  unmount(target: string, flags: number): Promise<number>
  /** open_tree(2) in the mount namespace of one process and move_mount(2) in that of another, on a pool thread. */
  cloneMount(fromPid: number, source: string, toPid: number, target: string): Promise<number>
  /**
   * Makes an ipc and a uts namespace (unshare(2), on a thread that ends with the call), sets the host name in it
   * (sethostname(2); an empty one stays as it is), and mounts each namespace on an existing file.
   */
  pinNamespaces(ipc: string, uts: string, hostname: string): Promise<number>

  /** swapon(2), on a thread of the pool. */
  swapOn(path: string, flags: number): Promise<number>
  /**
   * ioctl(2), on a thread of the pool, for requests that encode the size of their argument (linux/ioctl.h). The kernel
   * reads and writes `argument`; -EINVAL when it is too short.
   */
  ioctl(fd: Fd, request: number, argument: Uint8Array): Promise<number>

  /** Reads a whole file, on a thread of the pool; -EFBIG when it has more than `maxBytes`. */
  readFile(path: string, maxBytes: number): Promise<Buffer | number>
  /**
   * One read(2) of each file, in one trip to a thread of the pool: their bytes, each followed by a NUL. One that cannot be
   * read, or has more than `maxBytes`, has no bytes.
   */
  readFiles(paths: readonly string[], maxBytes: number): Promise<Buffer | number>
  /** Creates or truncates a file and writes `data`, on a thread of the pool. */
  writeFile(path: string, data: Uint8Array, mode: number): Promise<number>

  /** openat2(2); `directory` is a descriptor or -100 (AT_FDCWD). Bytes are for a path that is not UTF-8. */
  openAt2(directory: Fd, path: string | Buffer, options: OpenHow): Fd
  /** openat2(2) that follows no symbolic link, on a thread of the pool: 0, or -ELOOP and others. */
  reachWithoutLinks(path: string): Promise<number>
  /**
   * openat2(2) of the place of a directory (O_PATH) below another one, on a thread of the pool: -EXDEV for a path that
   * leads out, -ELOOP for one with a symbolic link in it, -ENOTDIR when the last component is one.
   */
  openBelow(directory: Fd, path: string): Promise<Fd>
  /**
   * Compares the numbers of a block device node with those (`254:16`) in a file of sysfs: 1 when they are equal; 0 when
   * not, or when one of the two does not exist. Not on a thread: both are in memory, and no driver is involved.
   */
  isBlockNodeOf(node: string, numbers: string): number
  /** mknod(2); `mode` includes the file type. */
  makeNode(path: string, mode: number, major: number, minor: number): number

  /**
   * Starts a program (execve(2), on a thread of the pool) in its own session, with the system's default limits, signals
   * and oom_score_adj. Returns its pid and a descriptor (pidfd_open(2)) that becomes readable when it has ended; then
   * `reap` must be called. `command` begins with the program's name. A stream of -1 is /dev/null. `denied` is the sum of
   * the system calls that it and its descendants are denied (seccomp(2)): 1 sockets of AF_VSOCK, 2 io_uring. With
   * `hasTerminal`, `stdin` becomes its controlling terminal, and the kernel kills it when the agent dies.
   */
  spawn(
    program: string,
    command: readonly string[],
    environment: readonly string[],
    directory: string,
    stdin: Fd,
    stdout: Fd,
    stderr: Fd,
    denied: number,
    hasTerminal: boolean,
  ): Promise<readonly [number, Fd] | number>
  /** waitpid(2) of a child. Returns its wait status; -EAGAIN while it runs. */
  reap(pid: number): number

  /** CLOCK_BOOTTIME. */
  boottimeNs(): bigint
  /** prlimit(2) of RLIMIT_NOFILE; pid 0 is this process. */
  setFileLimit(pid: number, soft: number, hard: number): number
  /** mlock2(2) with MLOCK_ONFAULT of the segments of the program and its libraries; unmaps first what is read-only in them. */
  lockMappedFiles(): number
  /**
   * From now on SIGUSR2 makes this process write to stderr which functions of JavaScript are running, even if they never
   * return. -ENOSYS where Node does not export what this needs.
   */
  reportStackOnSignal(): number
  setHostname(name: string): number
  /** clock_settime(CLOCK_REALTIME). */
  setTime(seconds: number, nanoseconds: number): number
  /** TIOCSWINSZ. */
  setWindowSize(fd: Fd, rows: number, columns: number): number

  /**
   * Calls `ready` once, when the descriptor is ready (also for EOF, error and hang-up); then the watch is over. A
   * descriptor may have any number of watches. Returns the watch's number.
   */
  watchFd(fd: Fd, direction: 'read' | 'write', ready: () => void): number
  /** Ends a watch without calling its callback; 0, or -ENOENT when it is over. */
  cancelWatch(fd: Fd, watch: number): number

  /**
   * Starts a relay, which owns the descriptors, and calls `ended` once. `through` is a whole pipe, or -1 when the source is
   * a pipe; what it holds is moved first. With `shutsDown`, shutdown(2) of a socket before its close. `tailBytes` above 0
   * keeps the last bytes. Returns the relay's number.
   */
  relayStart(
    source: Fd,
    target: Fd,
    through: Fd,
    shutsDown: boolean,
    tailBytes: number,
    ended: (bytes: bigint, errno: number, tail: RelayTail | number) => void,
  ): number
  /** Ends a relay as after EOF once it has moved what its source holds now. Does nothing when the relay is over. */
  relayDrain(relay: number): void
  /** Ends a relay with ECANCELED. Does nothing when the relay is over. */
  relayStop(relay: number): void
  /** The last bytes of a relay. -ENODATA when it keeps none, -ENOENT once its callback runs, which gets them too. */
  relayTail(relay: number): RelayTail | number
  /** The bytes that all relays have moved so far. */
  relayedBytes(): bigint
}

/** A message with its descriptors (SCM_RIGHTS). */
export interface ReceivedMessage {
  readonly data: Buffer
  readonly fds: readonly Fd[]
}

/** struct open_how of openat2(2). */
export interface OpenHow {
  readonly flags: number
  readonly mode: number
  readonly resolve: number
}

const ADDON = 'addon.node'

/**
 * The folder with the agent's other files (addon.node, vminit, …): the folder of the running file, as in the guest, or
 * else `build/agent` of the source tree. Throws FAILED_PRECONDITION when neither has addon.node.
 */
export function findAgentFolder(runningFile: string): string {
  const own = dirname(runningFile)
  if (existsSync(join(own, ADDON))) return own
  for (let folder = own; folder !== dirname(folder); folder = dirname(folder)) {
    const built = join(folder, 'build', 'agent')
    if (existsSync(join(built, ADDON))) return built
  }
  throw new AgentError(
    'FAILED_PRECONDITION',
    `${ADDON}: not found beside ${runningFile} nor in a build/agent above it`,
  )
}

/** Loads addon.node from the agent's folder. */
export function loadNative(agentFolder: string): Native {
  const path = join(agentFolder, ADDON)
  const holder: { exports: unknown } = { exports: {} }
  try {
    process.dlopen(holder, path)
  } catch (error) {
    throw fromNodeError('load', path, error)
  }
  // The addon is built from this project's own sources, and tests call the functions that Native names.
  return holder.exports as Native
}
