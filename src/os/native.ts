import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { AgentError } from '../base/errors.ts'
import { fromNodeError } from './errors.ts'
import type { Fd, RelayTail } from './streams/streams.ts'

/**
 * The addon (native/addon). Functions that return a promise run on a thread of libuv's pool. A result below zero is
 * -errno; every new descriptor is O_CLOEXEC.
 */
export interface Native {
  /** Returns the reading and the writing end, both blocking. */
  pipe(): readonly [Fd, Fd] | number
  /** The master, which does not block, and the other side, which is no controlling terminal yet. */
  pty(): readonly [Fd, Fd] | number
  /** F_GETPIPE_SZ; -EBADF when `fd` is not a pipe. */
  pipeSize(fd: Fd): number
  /** F_SETPIPE_SZ, which can also shrink a pipe. Returns the new size. */
  setPipeSize(fd: Fd, sizeBytes: number): number
  setNonBlocking(fd: Fd, nonBlocking: boolean): number
  duplicate(fd: Fd): Fd
  /** One read(2): at most 64 KiB when the kernel cannot tell the size in advance; empty at EOF. */
  read(fd: Fd, maxBytes: number): Buffer | number
  write(fd: Fd, data: Uint8Array): number
  /** close(2); -EBUSY while the descriptor is watched. */
  close(fd: Fd): number

  readableBytes(fd: Fd): number
  /** One recv(2) with MSG_PEEK, of at most 64 KiB. */
  peek(fd: Fd, maxBytes: number): Buffer | number
  memoryFile(name: string): Fd
  /** One splice(2) that never blocks, at the positions of both. Returns the bytes moved, 0 at EOF. */
  splice(source: Fd, target: Fd, maxBytes: number): number
  readAt(fd: Fd, offset: number, maxBytes: number): Buffer | number
  writeAt(fd: Fd, offset: number, data: Uint8Array): number
  positionOf(fd: Fd): number
  setPosition(fd: Fd, offset: number): number
  truncate(fd: Fd, sizeBytes: number): number
  /** A whole file in ASCII or latin1, as long as the text is used: of its pages only those are read that are looked at. */
  mappedText(path: string): string | number
  /** The same of bytes, all of which are read at once. */
  mappedBytes(path: string): Buffer | number
  /** fallocate(2): frees the memory of a part. The file keeps its size. */
  punchHole(fd: Fd, offset: number, bytes: number): number

  /** Opens a non-blocking eventfd(2) with the value 0. */
  eventFd(): Fd
  /** Opens a blocking AF_UNIX stream pair. */
  socketPair(): readonly [Fd, Fd] | number
  /** Opens a blocking AF_UNIX pair of SOCK_SEQPACKET. */
  messagePair(): readonly [Fd, Fd] | number
  /** Opens a non-blocking listening AF_VSOCK socket; cid 4294967295 is any. */
  vsockListen(cid: number, port: number, backlog: number): Fd
  /** Opens a non-blocking AF_VSOCK socket, which connects for at most `timeoutMs`. */
  vsockSocket(timeoutMs: number): Fd
  /** Starts or continues to connect. Returns 0 or -errno. Once `fd` is writable, `socketError` returns the outcome. */
  vsockConnect(cid: number, port: number, fd: Fd): number
  vsockPeer(fd: Fd): { readonly cid: number; readonly port: number } | number
  /** Opens a non-blocking NETLINK_ROUTE socket. When `write` returns, the kernel has answered. */
  netlinkRoute(): Fd
  /** SO_ERROR: 0 or -errno. */
  socketError(fd: Fd): number
  /** Opens a non-blocking listening AF_UNIX stream socket at a path, or at `@NAME` in the abstract namespace. */
  unixListen(path: string, backlog: number): Fd
  unixSocket(): Fd
  /** Does nothing for a connected socket. Returns 0 or -errno: -EAGAIN when the listener's queue is full. */
  unixConnect(path: string, fd: Fd): number
  /** The path of the peer's socket, empty when it is unbound. */
  unixPeer(fd: Fd): string | number
  /** Returns a non-blocking socket. */
  accept(fd: Fd): Fd
  /** shutdown(2) of both directions, which ends the connection also where another process has the socket open. */
  shutdown(fd: Fd): number
  /** Opens a non-blocking NETLINK_KOBJECT_UEVENT socket in the kernel's group, with a receive buffer of this size. */
  ueventListen(receiveBufferBytes: number): Fd
  /** Events of the kernel, each ended by two NULs; -EAGAIN without one. U+FFFD replaces bytes that are not UTF-8. */
  ueventReceive(fd: Fd): string | number
  /** recvmsg(2). Returns the descriptor of an SCM_RIGHTS message; -ENODATA when it has none. */
  receiveFd(fd: Fd): Fd
  /** sendmsg(2) with one to three descriptors (SCM_RIGHTS), which stay open here. Returns the bytes sent. */
  sendFd(fd: Fd, data: Uint8Array, passed: Fd, second?: Fd, third?: Fd): number
  /** The caller owns the descriptors; `data` is empty at EOF. -EMSGSIZE for a longer message, which is lost. */
  recvMessage(fd: Fd, maxBytes: number): ReceivedMessage | number
  /** One sendmsg(2). `passed` stays open here. Returns the bytes sent. */
  sendMessage(fd: Fd, data: Uint8Array, passed?: Fd): number

  /** mount(2). With `refuseLinks`, -ELOOP for a symbolic link on the way to the target. */
  mount(
    source: string,
    target: string,
    type: string,
    flags: number,
    data: string,
    refuseLinks: boolean,
  ): Promise<number>
  /** fsopen(2), fsconfig(2) for each setting (`key=value`, `key`), fsmount(2) with MOUNT_ATTR_ bits, move_mount(2). */
  mountBySettings(
    source: string,
    target: string,
    type: string,
    attributes: number,
    settings: readonly string[],
    refuseLinks: boolean,
  ): Promise<number>
  unmount(target: string, flags: number): Promise<number>
  /** open_tree(2) in one process's mount namespace and move_mount(2) in another's. */
  cloneMount(fromPid: number, source: string, toPid: number, target: string): Promise<number>
  /** Mounts a new ipc and a new uts namespace on existing files. An empty `hostname` changes no name. */
  pinNamespaces(ipc: string, uts: string, hostname: string): Promise<number>
  /** The host name of the uts namespace at a path. Unless `hostname` is empty, it has that one afterwards. */
  hostnameIn(namespace: string, hostname: string): Promise<Buffer | number>

  swapOn(path: string, flags: number): Promise<number>
  /** ioctl(2) for requests that encode the size of their argument (linux/ioctl.h); -EINVAL for a shorter one. */
  ioctl(fd: Fd, request: number, argument: Uint8Array): Promise<number>

  /** -EFBIG when the file has more than `maxBytes`. */
  readFile(path: string, maxBytes: number): Promise<Buffer | number>
  /** One read(2) of each file: its bytes, none if it cannot be read or exceeds `maxBytes`, and a NUL. */
  readFiles(paths: readonly string[], maxBytes: number): Promise<Buffer | number>
  /** rmdir(2) of each, also after a failure. Returns a byte for each: 0 or the errno. */
  removeFolders(paths: readonly string[]): Promise<Buffer | number>
  writeFile(path: string, data: Uint8Array, mode: number): Promise<number>
  /** Writes the file `unfinished`, then renames it to `path`. */
  replaceFile(unfinished: string, path: string, data: Uint8Array, mode: number): number
  /** unlink(2). */
  removeFile(path: string): number
  /** unlink(2) of each name that is in the folder, then rmdir(2). */
  removeFolder(path: string, names: readonly string[]): number
  /** `readFile` of a regular file, on this thread; -EISDIR, -EINVAL or -ELOOP for anything else. */
  readText(path: string, maxBytes: number): string | number
  /** One sendfile(2) to a file, whose position changes; that of the source does not. Returns the bytes moved. */
  sendFile(source: Fd, from: number, target: Fd, to: number, maxBytes: number): Promise<number>
  /** Write-locks a range for the open file, by F_OFD_SETLK. -EAGAIN when another open file has a lock of a part. */
  lockRange(fd: Fd, start: number, bytes: number): number

  /** `directory` is a descriptor or -100 (AT_FDCWD). Bytes are for a path that is not UTF-8. */
  openAt2(directory: Fd, path: string | Buffer, options: OpenHow): Fd
  /** openat2(2) that follows no symbolic link: 0, or -ELOOP and others. */
  reachWithoutLinks(path: string): Promise<number>
  /** Opens a directory with O_PATH. -EXDEV for a path that leads out, -ELOOP or -ENOTDIR for a symbolic link. */
  openBelow(directory: Fd, path: string): Promise<Fd>
  /** 1 if a block device node has the numbers (`254:16`) in a file of sysfs; 0 if not, or if one is missing. */
  isBlockNodeOf(node: string, numbers: string): number
  /** mknod(2); `mode` includes the file type. */
  makeNode(path: string, mode: number, major: number, minor: number): number

  /**
   * Starts a program in its own session with default limits, signals and oom_score_adj. Returns its pid and a pidfd,
   * which is readable after its end; `reap` must be called then. `command` begins with the program's name. A stream of
   * -1 is /dev/null. `denied` is a sum (seccomp(2)): 1 AF_VSOCK sockets, 2 io_uring. With `hasTerminal`, `stdin` is its
   * controlling terminal, and the kernel kills it when the agent dies.
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
  /** Returns the wait status of a child; -EAGAIN while it runs. */
  reap(pid: number): number

  boottimeNs(): bigint
  /** prlimit(2) of RLIMIT_NOFILE; pid 0 is this process. */
  setFileLimit(pid: number, soft: number, hard: number): number
  /** mlock2(2), MLOCK_ONFAULT, of the program and its libraries. Unmaps their read-only segments first. */
  lockMappedFiles(): number
  /** From now on SIGUSR2 writes the running JavaScript functions to stderr. -ENOSYS if Node lacks the symbols. */
  reportStackOnSignal(): number
  /** A non-blocking descriptor of /dev/kmsg at its oldest record, or after the last one. */
  openKernelLog(fromStart: boolean): Fd
  /** The next record, but none from before `fromUs`. Without one: -EAGAIN, or 0 when it has skipped many and there may be more. */
  readKernelLog(fd: Fd, fromUs: number): Buffer | number
  /** RAND_poll(3): OpenSSL takes new seeds of the kernel for all threads. -ENOSYS if Node lacks the symbol. */
  reseedGenerators(): number
  setHostname(name: string): number
  /** clock_settime(CLOCK_REALTIME). */
  setTime(seconds: number, nanoseconds: number): number
  setWindowSize(fd: Fd, rows: number, columns: number): number

  /** Calls `ready` once when the descriptor is ready (also at EOF, error, hang-up). Returns the watch's number. */
  watchFd(fd: Fd, direction: 'read' | 'write', ready: () => void): number
  /** Ends a watch without calling its callback; 0, or -ENOENT when it is over. */
  cancelWatch(fd: Fd, watch: number): number
  /** Calls `ready` whenever the socket has something to read (also EOF or an error), until `stopReading`, before a close. */
  startReading(fd: Fd, ready: () => void): number
  stopReading(fd: Fd): number

  /**
   * Owns the descriptors and calls `ended` once. `source` or `target` is -1 for a connection that is not there.
   * `through` is a whole pipe, whose bytes are moved first, or -1 when the source is a pipe. `flags` are 1: shutdown(2)
   * before a close, 2: `detached` is called, not `ended`, when the connection's device is gone, 4: it resumes. `tailBytes` above 0 keeps
   * the last bytes. `totals` is a file with three numbers at `totalsOffset` (native/addon/relay/stream.h), or -1.
   * `kept` and `sent` are the files of an output that resumes, which the relay owns, or -1. Returns the relay's number.
   */
  relayStart(
    source: Fd,
    target: Fd,
    through: Fd,
    flags: number,
    tailBytes: number,
    totals: Fd,
    totalsOffset: number,
    kept: Fd,
    sent: Fd,
    ended: (bytes: bigint, errno: number, tail: RelayTail | number) => void,
    detached: () => void,
  ): number
  /** Closes the connection of a relay between two bytes, then calls `detached`, unless it has none or is over. */
  relayDetach(relay: number): void
  /** Owns the connection, and closes it when the relay is over or has one. */
  relayAttach(relay: number, connection: Fd): number
  /** Ends a relay as after EOF once it has moved what its source holds now. Does nothing when the relay is over. */
  relayDrain(relay: number): void
  /** Ends a relay with ECANCELED. Does nothing when the relay is over. */
  relayStop(relay: number): void
  /** -ENODATA when the relay keeps no last bytes, -ENOENT once its callback runs, which gets them. */
  relayTail(relay: number): RelayTail | number
  relayedBytes(): bigint
}

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

/** The running file's folder, or `build/agent` above it. Throws FAILED_PRECONDITION when neither has addon.node. */
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

export function loadNative(agentFolder: string): Native {
  const path = join(agentFolder, ADDON)
  let addon: unknown
  try {
    // The start script of the agent has loaded it already (src/build/agent-start.cjs).
    addon = createRequire(path)(path)
  } catch (error) {
    throw fromNodeError('load', path, error)
  }
  // The addon is built from this project's sources, and tests call the functions that Native names.
  return addon as Native
}
