import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { AgentError } from '../../../base/errors.ts'
import type { Logger } from '../../../base/log.ts'
import { SIGKILL } from '../../../base/signals.ts'
import type { Clock } from '../../../os/clock.ts'
import type { QmpClient } from '../../qemu/qmp/client.ts'
import { connectQmp } from '../../qemu/qmp/connect.ts'
import type { QmpEvent } from '../../qemu/qmp/message.ts'
import type { HeldChild, Holder } from '../holder/holder.ts'
import type { InstanceLimits } from '../limits.ts'

/** The names of QEMU's process and of its socket in the instance's folder. */
export const QEMU = { child: 'qemu', socket: 'qmp.sock' } as const

/** What the names of the daemons of network disks begin with. */
export const NETWORK_DISK = 'nbd'

/** How a machine has ended. */
export interface Gone {
  readonly kind: 'state' | 'holder died' | 'qmp error'
  readonly reason: string
}

export interface MachineParts {
  readonly folder: string
  readonly holder: Holder
  readonly limits: InstanceLimits
  readonly clock: Pick<Clock, 'sleep' | 'startTimer'>
  readonly log: Pick<Logger, 'warn'>
  /** Ends the wait for the greeting. */
  readonly signal: AbortSignal
  readonly onEvent: (event: QmpEvent) => void
}

/**
 * QEMU waits for the requests of all disks before it pauses, for ever where a server has stalled: libiscsi connects again without an
 * end. Without their daemons the requests fail, which costs the guest these disks, not its life.
 */
async function endNetworkDisks({ holder, log }: MachineParts, command: string): Promise<void> {
  for (const { name, exit } of await holder.children()) {
    if (!name.startsWith(`${NETWORK_DISK}-`) || exit !== undefined) continue
    log.warn('daemon of a network disk killed', {
      daemon: name,
      reason: `QEMU is slow to answer \`${command}\``,
    })
    await holder.kill(name, SIGKILL)
  }
}

/** A QEMU that runs below a holder, and the session with it. */
export class Machine {
  readonly qmp: QmpClient
  readonly holder: Holder
  /** Resolves when QEMU or its holder has ended, or the session with it. */
  readonly gone: Promise<Gone>
  readonly #parts: MachineParts
  /** What the guest said before QEMU ended. */
  #lastWords: string | undefined

  private constructor(qmp: QmpClient, parts: MachineParts) {
    this.qmp = qmp
    this.holder = parts.holder
    this.#parts = parts
    this.gone = this.#watch()
  }

  /** Waits for QEMU's greeting. Rejects with UNAVAILABLE and QEMU's own words when QEMU ends before that. */
  static async connect(parts: MachineParts): Promise<Machine> {
    const { folder, holder, limits, signal } = parts
    const failed = new AbortController()
    const fail = (reason: string) => failed.abort(new AgentError('UNAVAILABLE', reason))
    const exited = Promise.withResolvers<HeldChild>()
    const stopListening = holder.onExit((child) => {
      if (child.name !== QEMU.child) return
      exited.resolve(child)
      fail('QEMU has ended')
    })
    const timer = setTimeout(
      () => fail(`QEMU did not greet within ${limits.greetingMs} ms`),
      limits.greetingMs,
    )
    void holder.ended.then(() => fail('the holder has ended'))
    let machine: Machine | undefined
    const early: QmpEvent[] = []
    try {
      const qmp = await connectQmp(join(folder, QEMU.socket), AbortSignal.any([signal, failed.signal]), {
        commandMs: limits.commandMs,
        onSlow: (command) => void endNetworkDisks(parts, command).catch(() => {}),
        onEvent: (event) => {
          if (machine !== undefined) machine.#receive(event)
          else if (early.length < limits.events) early.push(event)
          else fail(`QEMU sent more than ${limits.events} events before it could be asked`)
        },
      })
      machine = new Machine(qmp, parts)
      for (const event of early) machine.#receive(event)
      return machine
    } catch (error) {
      signal.throwIfAborted()
      const exit = await exitOf(parts, exited.promise)
      if (exit === undefined) throw error
      throw new AgentError('UNAVAILABLE', await describeEnd(folder, exit), { cause: error })
    } finally {
      clearTimeout(timer)
      stopListening()
    }
  }

  /** Ends the session. QEMU goes on. */
  close(): void {
    this.qmp.close()
  }

  #receive(event: QmpEvent): void {
    if (event.name === 'GUEST_PANICKED') this.#lastWords ??= 'the guest panicked'
    if (event.name === 'SHUTDOWN' && event.data.guest === true) this.#lastWords ??= 'the guest has shut down'
    this.#parts.onEvent(event)
  }

  async #watch(): Promise<Gone> {
    const { holder, clock, folder, limits } = this.#parts
    const exited = Promise.withResolvers<HeldChild>()
    const stopListening = holder.onExit((child) => child.name === QEMU.child && exited.resolve(child))
    const holderEnded = holder.ended.then(() => 'holder' as const)
    const ended = await Promise.race([
      this.qmp.ended,
      exited.promise.then(() => 'exit' as const),
      holderEnded,
    ])
    const over = new AbortController()
    const late = clock.sleep(limits.exitMs, over.signal).catch(() => {})
    const child = await Promise.race([exited.promise, holderEnded, late])
    // The last events of a QEMU that has exited may not have been read yet.
    if (ended === 'exit') await Promise.race([this.qmp.ended, late])
    this.close()
    over.abort()
    stopListening()
    if (child === 'holder') return { kind: 'holder died', reason: 'the holder died' }
    if (this.#lastWords !== undefined) return { kind: 'state', reason: this.#lastWords }
    const exit = child === undefined ? undefined : child.exit
    if (exit !== undefined) return { kind: 'state', reason: await describeEnd(folder, exit) }
    return { kind: 'qmp error', reason: ended instanceof Error ? ended.message : 'QEMU has ended' }
  }
}

/** How QEMU has ended, if it does so soon: its socket closes before. */
async function exitOf(
  { holder, clock, limits }: MachineParts,
  exited: Promise<HeldChild>,
): Promise<HeldChild['exit']> {
  const over = new AbortController()
  const late = clock.sleep(limits.exitMs, over.signal).catch(() => {})
  const listed = (await holder.children().catch(() => [])).find(({ name }) => name === QEMU.child)
  const child = listed?.exit === undefined ? await Promise.race([exited, late]) : listed
  over.abort()
  return child?.exit
}

export async function describeEnd(folder: string, exit: NonNullable<HeldChild['exit']>): Promise<string> {
  const how =
    exit.signal === undefined ? `exited with status ${exit.code}` : `was ended by signal ${exit.signal}`
  const words = await lastLine(join(folder, `${QEMU.child}.log`))
  return words === '' ? `QEMU ${how}` : `QEMU ${how}: ${words}`
}

/** Read from the end of a log; longer than any line that QEMU writes there. */
const LOG_TAIL_BYTES = 4096

/** What a process wrote last to its log; empty without a log. */
export async function lastLine(path: string): Promise<string> {
  try {
    await using file = await open(path)
    const { size } = await file.stat()
    const tail = Buffer.alloc(LOG_TAIL_BYTES)
    const { bytesRead } = await file.read(tail, 0, tail.length, Math.max(0, size - tail.length))
    return tail.toString('utf8', 0, bytesRead).trimEnd().split('\n').at(-1) ?? ''
  } catch {
    // Without its log, the end of QEMU is told by its status alone.
    return ''
  }
}
