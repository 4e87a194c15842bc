import type { AgentError } from '../base/errors.ts'
import type { Uevent } from './devices/uevent.ts'
import type { Files, ScratchFiles } from './files/files.ts'
import type { Network } from './network/network.ts'

/**
 * Everything the agent asks of the kernel. `src/os` implements it for Linux; a fake implements it in unit tests.
 * Failures are `AgentError`s of code INTERNAL with the errno name in `errno` and a sentence `<call> <path>: <ERRNO>`.
 */
export interface Os {
  readonly clock: Clock
  readonly files: Files
  readonly scratch: ScratchFiles
  readonly mounts: Mounts
  readonly volumes: Volumes
  readonly blockDevices: BlockDevices
  readonly tools: Tools
  readonly streams: Streams
  readonly consoles: Consoles
  readonly hostSockets: HostSockets
  readonly exits: Exits
  readonly supervisor: Supervisor
  readonly system: System
  readonly network: Network
  readonly uevents: Uevents
  readonly cgroupEvents: CgroupEvents
}

export interface Clock {
  /** CLOCK_BOOTTIME in nanoseconds: the clock of exit records. */
  boottimeNs(): bigint
  /** Milliseconds of a monotonic clock, for measuring. */
  monotonicMs(): number
  sleep(ms: number, signal?: AbortSignal): Promise<void>
  /** Calls back once after `ms`, unless the function that it returns is called first. */
  startTimer(ms: number, expired: () => void): () => void
}

export interface MountEntry {
  readonly id: number
  readonly parentId: number
  readonly mountPoint: string
  readonly type: string
  readonly source: string
  /** The mount's own options (`rw,nosuid,relatime`), not those of its file system. */
  readonly options: string
  readonly major: number
  readonly minor: number
}

export interface Mounts {
  /** mount(2). `flags` are names of the MS_ constants without the prefix, lower case: `nosuid`, `bind`, `rec`, … */
  mount(request: {
    readonly source: string
    readonly target: string
    readonly type: string
    readonly flags: readonly MountFlag[]
    readonly data: string
    /** Follows no symbolic link on the way to the target: ELOOP. */
    readonly refuseLinks?: boolean
  }): Promise<void>
  /** umount2(2), never following a symbolic link. */
  unmount(target: string, options?: { readonly detach?: boolean }): Promise<void>
  /** Mounts a copy of what one process sees mounted at a path, and below it, at a path that another one sees. */
  clone(from: MountPlace, to: MountPlace): Promise<void>
  /** The mountinfo of a process, or of this one, in its order. ENOENT when the process is gone. */
  list(pid?: number): Promise<readonly MountEntry[]>
}

/** A path in the mount namespace of a process, from the root of that namespace. */
export interface MountPlace {
  readonly pid: number
  readonly path: string
}

export type MountFlag =
  | 'ro'
  | 'nosuid'
  | 'nodev'
  | 'noexec'
  | 'synchronous'
  | 'remount'
  | 'mandlock'
  | 'dirsync'
  | 'noatime'
  | 'nodiratime'
  | 'bind'
  | 'move'
  | 'rec'
  | 'silent'
  | 'unbindable'
  | 'private'
  | 'slave'
  | 'shared'
  | 'relatime'
  | 'i_version'
  | 'strictatime'
  | 'lazytime'

/** What file systems have room for, and space for swapping. */
export interface Volumes {
  /** statfs(2): the file system that `path` is on. ENOENT when there is nothing at `path`. */
  usage(path: string): Promise<FileSystemUsage>
  /** How file systems of this type (as in {@link MountEntry}) grow while they are mounted; undefined for those that do not. */
  growth(type: string): FileSystemGrowth | undefined
  /** swapon(2) of a block device or file: EINVAL when it is not prepared for it, EBUSY when it is in use. */
  addSwap(path: string): Promise<void>
  /** The block devices and files that are swapped on, by the names they were given. */
  swaps(): Promise<readonly string[]>
}

export interface FileSystemUsage {
  readonly blockBytes: bigint
  readonly blocks: bigint
  /** Those reserved for root are free as well. */
  readonly freeBlocks: bigint
  readonly inodes: bigint
  readonly freeInodes: bigint
}

/** A file system that is mounted somewhere. */
export interface Volume {
  readonly mountPoint: string
  /** The node of the block device it is on. */
  readonly device: string
}

/** One type of file system that can grow while it is mounted. */
export interface FileSystemGrowth {
  /** All it covers of its device, its own bookkeeping included. */
  size(volume: Volume): Promise<{ readonly blockBytes: bigint; readonly blocks: bigint }>
  /** Makes it cover so many blocks: no fewer than it has. EROFS on a mount that is read-only. */
  grow(volume: Volume, blocks: bigint): Promise<void>
}

/** Disks by their nodes, and devices that the kernel's device mapper makes of them. */
export interface BlockDevices {
  /** So many bytes at an offset, fewer where the device ends before. */
  read(node: string, offsetBytes: number, lengthBytes: number): Promise<Uint8Array>
  /**
   * Makes a read-only device of one target (dmsetup(8)), and gives its node. EBUSY when there is a device of this name;
   * ENOENT or ENXIO where the kernel has no device mapper, EINVAL when it does not take the target.
   */
  map(name: string, target: MappedTarget): Promise<string>
  /** Takes a device away that {@link BlockDevices.map} made: as soon as nobody has it open. ENXIO when there is none. */
  unmap(name: string): Promise<void>
}

/** What a device of the device mapper is made of. */
export interface MappedTarget {
  /** `verity`. */
  readonly type: string
  /** Its size, in sectors of 512 bytes. */
  readonly sectors: bigint
  readonly parameters: string
}

export interface ToolResult {
  /** 128 + signal when a signal ended it. */
  readonly exitCode: number
  readonly stdout: string
  readonly stderr: string
}

/**
 * Short-lived helper programs (runc, modprobe, mkfs …). They run with oom_score_adj 0 and the default
 * RLIMIT_NOFILE, in an environment of PATH alone unless `env` says more.
 */
export interface Tools {
  /** Runs to the end. Rejects only when it cannot be started, times out (it is killed) or `signal` fires (it is killed). */
  run(
    argv: readonly [string, ...string[]],
    options?: {
      /** argv[0] for the program, when it is not the path: one of several programs in one file goes by it. */
      readonly name?: string
      readonly stdin?: string | Uint8Array
      /** fds that become 0, 1 and 2 of the program instead of /dev/null and captured pipes. They stay open here. */
      readonly stdio?: readonly [Fd | undefined, Fd | undefined, Fd | undefined]
      readonly cwd?: string
      readonly env?: Readonly<Record<string, string>>
      readonly timeoutMs?: number
      readonly signal?: AbortSignal
      /** How its output becomes text: `latin1` makes each byte a character. Default `utf8`. */
      readonly encoding?: 'utf8' | 'latin1'
      /** Per stream; more is dropped and noted. Default 64 KiB. */
      readonly maxOutputBytes?: number
    },
  ): Promise<ToolResult>
}

/** An open file descriptor of this process; whoever opened it closes it. */
export type Fd = number

/** Pipes, ptys and fifos: readiness on the loop, then one non-blocking system call. */
export interface Streams {
  /** pipe2(O_CLOEXEC); `sizeBytes` > 0 sets F_SETPIPE_SZ. `parentEnd` is the non-blocking end, `childEnd` the blocking one for a child. */
  pipe(
    direction: 'child-writes' | 'child-reads',
    sizeBytes?: number,
  ): { readonly parentEnd: Fd; readonly childEnd: Fd }
  /** Waits that are pending on `fd` are rejected with EBADF. */
  close(fd: Fd): void
  /** Another descriptor (O_CLOEXEC) of the same open file. */
  duplicate(fd: Fd): Fd
  /** Lets a pipe hold at least `sizeBytes`. Answers whether the kernel allows it; a pty is never resized. */
  growPipe(fd: Fd, sizeBytes: number): boolean
  /** Resolves when a read would not block (data, EOF or error). */
  readable(fd: Fd, signal?: AbortSignal): Promise<void>
  /** Resolves when a write would not block. */
  writable(fd: Fd, signal?: AbortSignal): Promise<void>
  /** One read(2): the bytes, empty at EOF (EIO of a pty is EOF too), undefined when it would block. */
  tryRead(fd: Fd, maxBytes: number): Buffer | undefined
  /** One write(2): how many bytes, 0 when it would block. Throws EPIPE when no reader is left. */
  tryWrite(fd: Fd, data: Uint8Array): number
  setWindowSize(fd: Fd, rows: number, columns: number): void
  /**
   * Moves bytes from `source` to `target` on a native thread until EOF, an error or `signal`, with no JavaScript in
   * between and no buffering but the kernel's. Takes both over and closes them at the end, so that EOF is a full
   * close; throws, and takes nothing, when it cannot begin. The promise never rejects. When `drain` fires, what the
   * source holds by then (at most as much as it can hold) is still moved, then it ends as after EOF.
   */
  relay(source: Fd, target: Fd, signal?: AbortSignal, drain?: AbortSignal): Promise<RelayResult>
}

/** How a relay ended. */
export interface RelayResult {
  readonly bytes: bigint
  /** undefined after EOF; `EPIPE` or `ECONNRESET` when the reader went away; `ECANCELED` when it was stopped. */
  readonly errno: string | undefined
}

/** The receiving side of an OCI runtime's `--console-socket`. */
export interface Consoles {
  /** Listens at `path`. `master` resolves with the pty master the runtime sends (non-blocking). */
  listen(path: string): { master(signal: AbortSignal): Promise<Fd>; close(): Promise<void> }
}

/** Where a connection between guest and host begins or ends: an AF_VSOCK port, or a path that stands for one. */
export type HostAddress =
  | { readonly kind: 'vsock'; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string }

/** Stream connections with the host that bytes are relayed through: descriptors of non-blocking sockets. */
export interface HostSockets {
  /**
   * Connects to an address of the host (CID 2). Nobody listens when it throws ECONNRESET or ETIMEDOUT (vsock), ENOENT
   * or ECONNREFUSED (a path). Throws what `signal` is aborted with. On vsock the kernel gives up after `timeoutMs`.
   */
  connect(address: HostAddress, timeoutMs: number, signal: AbortSignal): Promise<Fd>
  /** Listens for connections of the host, which live on after `close`. */
  listen(address: HostAddress, listener: HostListener): Promise<{ close(): void }>
}

export interface HostListener {
  /** Takes the descriptor over. */
  connection(fd: Fd, peer: HostPeer): void
  /** Accepting failed; listening goes on. */
  error(error: AgentError): void
}

/** Who connected: an AF_VSOCK address, or the path that the peer's socket is bound to (empty when it is not). */
export type HostPeer =
  | { readonly kind: 'vsock'; readonly cid: number; readonly port: number }
  | { readonly kind: 'unix'; readonly path: string }

export interface ExitRecord {
  readonly pid: number
  /** Exit code, or 128 + signal. */
  readonly exitCode: number
  readonly signal: number | undefined
  /** CLOCK_BOOTTIME when it was reaped. */
  readonly reapedAtNs: bigint
  readonly userTimeUs: bigint
  readonly systemTimeUs: bigint
  readonly maxRssKib: bigint
}

/** Exits of processes that are not our children, as reported by vminit. */
export interface Exits {
  /** undefined when usable, else the sentence that container calls answer with (not run below vminit …). */
  readonly unavailable: string | undefined
  /** Begins to listen: take it before the program that starts the process is started. */
  watch(): ExitWatch
}

export interface ExitWatch {
  /**
   * The exit of `pid`, if reaped after this watch began; may be called before or after it happened. When vminit
   * had to drop the record, the exit code is 255. Rejects when the watch is closed or vminit is gone.
   */
  exitOf(pid: number): Promise<ExitRecord>
  /** Frees the watch. A pending `exitOf` stays valid. Call it as soon as the pid was claimed or none will be. */
  close(): void
}

/** What vminit, which started this agent, asks of it and does for it. */
export interface Supervisor {
  /** Resolves when the agent shall stop in good order: with a signal's number, or 0 when vminit is gone. */
  readonly shutdownRequested: Promise<number>
  /** Powers the virtual machine off, or ends the wrapper with 0 when it is no virtual machine. */
  powerOff(): Promise<void>
  /** Ends the wrapper with `status`; in a virtual machine it powers off. */
  exitWith(status: number): Promise<void>
}

/** The agent's own process and the machine it runs on. */
export interface System {
  /** kill(2); 0 probes. Throws ESRCH when there is no such process. */
  signal(pid: number, signal: number): void
  /** setrlimit(RLIMIT_NOFILE) of this process, soft and hard alike; EPERM above `/proc/sys/fs/nr_open`. */
  setOpenFileLimit(limit: number): void
  /** setpriority(2) of this process with all its threads; programs that it starts do not inherit less than 0. */
  setNice(nice: number): void
  /** umask(2) of this process. */
  setUmask(mask: number): void
  /** sethostname(2). */
  setHostname(name: string): void
  /** clock_settime(CLOCK_REALTIME), in microseconds since 1970; EINVAL for a time before the machine's start by its own count. */
  setTime(microseconds: bigint): void
  /** Mixes bytes into the kernel's random numbers, counts all their bits as unpredictable, and seeds anew. */
  addEntropy(data: Uint8Array): Promise<void>
  /** Calls `handler` instead of the signal's default action. Returns how to stop that. */
  onSignal(signal: HandledSignal, handler: () => void): () => void
  readonly pid: number
  /** Node's name for it: `x64`, `arm64`, … */
  readonly architecture: string
}

export type HandledSignal = 'SIGTERM' | 'SIGINT' | 'SIGHUP' | 'SIGQUIT' | 'SIGUSR1' | 'SIGUSR2'

/** The kernel's events about devices that come and go (netlink KOBJECT_UEVENT, group 1). */
export interface Uevents {
  /**
   * Listens from now on: every event sent after the return is handed over, in its order. Datagrams of
   * other senders than the kernel, and what is no event, are dropped. Whoever listens closes.
   */
  listen(listener: UeventListener): { close(): void }
}

export interface UeventListener {
  event(event: Uevent): void
  /** Receiving failed, so that events may have been lost. Listening goes on, if need be by a new socket, which is told again. */
  error(error: AgentError): void
}

/** What the kernel tells about a cgroup by itself. Whoever listens closes; nothing is called after that. */
export interface CgroupEvents {
  /** cgroup v2: calls back after each change of a file that the kernel changes. Throws when it cannot listen. */
  onModified(path: string, happened: () => void): { close(): void }
  /**
   * cgroup v1: calls back after each event about a file of the cgroup at `folder` (cgroup.event_control), and when the
   * cgroup is removed. Rejects when it cannot listen.
   */
  onNotified(folder: string, file: string, happened: () => void): Promise<{ close(): void }>
}
