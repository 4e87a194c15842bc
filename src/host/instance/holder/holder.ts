import type { Duplex } from 'node:stream'
import type { Native } from '../../../os/native.ts'
import type { Fd } from '../../../os/streams/streams.ts'

/** A process that the holder has started. */
export interface HeldChild {
  readonly name: string
  /** In the PID namespace of this process. */
  readonly pid: number
  /** Undefined while it runs. */
  readonly exit: { readonly code: number | undefined; readonly signal: number | undefined } | undefined
}

/** A bounded record of the last bytes of a stream. */
export interface Ring {
  /** 0 is the console; others are the ports of streams. */
  readonly number: number
  /** Position of the oldest byte that is kept, and of the next byte to come. */
  readonly first: bigint
  readonly end: bigint
  readonly isClosed: boolean
}

export interface HeldLease {
  /** Of CLOCK_BOOTTIME. */
  readonly untilNs: bigint
  /** The processes were killed at that moment. */
  readonly hasEnded: boolean
}

export interface ChildPlan {
  readonly name: string
  readonly argv: readonly [string, ...string[]]
  /** What it is given and what is taken from it before it runs (native/holder/children/walls.h). */
  readonly walls?: readonly string[] | undefined
  /** `console`: its stdin and stdout are ring 0. `log`: stdout and stderr go to the file NAME.log of the folder. */
  readonly output: 'console' | 'log'
}

/**
 * The parent of an instance's processes, and init of their PID namespace: when it dies, the kernel kills them all. It
 * outlives the daemon. Calls reject with UNAVAILABLE once it is gone.
 */
export interface Holder {
  /** In the PID namespace of this process; undefined when the holder is a part of it. */
  readonly pid: number | undefined
  start(plan: ChildPlan): Promise<HeldChild>
  /** Does nothing when the child has ended. */
  kill(name: string, signal: number): Promise<void>
  children(): Promise<readonly HeldChild[]>
  /** Calls `listener` for each child that ends from now on. */
  onExit(listener: (child: HeldChild) => void): () => void
  /** Listens on the unix socket `path`; what its one peer sends is kept in the ring `number`. */
  listen(path: string, number: number): Promise<void>
  rings(): Promise<readonly Ring[]>
  /**
   * The bytes of a ring from `offset` on, or from its oldest one. The stream ends with the ring, or when its reader falls
   * behind by more than the ring keeps. What is written to it goes to the console, or to the peer of the port.
   */
  attach(number: number, offset: bigint): Promise<{ readonly first: bigint; readonly stream: Duplex }>
  closeRing(number: number): Promise<void>
  /** Goes on after the bytes that the file of a ring has by now; nothing may have been read of its source. */
  takeRing(number: number): Promise<void>
  /**
   * Takes a memory file with the content of the file at `path`, whose holes stay holes. A `copy` is for QEMU alone; a `sealed` one,
   * which no one can write, is for the QEMU of any instance (`memory` of native/holder/children/walls.h). A holder has one.
   */
  memory(path: string): Promise<void>
  /** Whether it has a sealed memory to give. */
  hasSealedMemory(): Promise<boolean>
  /**
   * Has the holder pass what comes from a server of NBD, `wire`, to QEMU, which gets the other end of `near`: records of TLS whole or not at
   * all. Both stay open here. Ends once QEMU closes it.
   */
  relay(sockets: { readonly near: Fd; readonly wire: Fd }, native: Pick<Native, 'sendFd'>): Promise<void>
  /**
   * Has the holder kill all processes at this moment of CLOCK_BOOTTIME in nanoseconds, unless it is set anew before, and whatever
   * becomes of this process. Rejects with FAILED_PRECONDITION for a moment that has passed and after the end of a lease, with
   * OUT_OF_RANGE for one that is more than an hour away.
   */
  setLease(untilNs: bigint): Promise<void>
  /** The lease that was set last; undefined when none was. Nothing is started after its end. */
  heldLease(): Promise<HeldLease | undefined>
  /** Kills all children and ends the holder. */
  end(): Promise<void>
  /** Resolves when the holder and all its children have ended; never rejects. Stays pending after `disconnect`. */
  readonly ended: Promise<void>
  /** Closes this connection. The holder goes on. */
  disconnect(): void
}
