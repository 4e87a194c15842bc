import { setImmediate as turn } from 'node:timers/promises'
import { kernelError } from '../../src/os/errors.ts'
import type { Os } from '../../src/os/os.ts'
import type { FakeOs } from '../support/fakes/fake-os.ts'

export interface Fault {
  readonly at: number
  /** The call fails, is answered some turns of the loop later, or never. A full store applies to all calls. */
  readonly what: 'fails' | 'is late' | 'is never answered' | 'the store is full'
  readonly errno: Errno
}

export const ERRNOS = ['EIO', 'ENOSPC', 'EMFILE', 'EDQUOT'] as const

export type Errno = (typeof ERRNOS)[number]

/** The calls that may fail. Closing and probing never fail. */
const FALLIBLE: Readonly<Record<string, readonly string[]>> = {
  files: [
    ...['readText', 'write', 'makeDirectories', 'makeDirectory', 'removeTree', 'lstat', 'stat', 'list'],
    ...['rename', 'removeFile', 'removeDirectory', 'removeDirectories', 'listFolders'],
  ],
  scratch: ['readText', 'write', 'replace', 'makeDirectory', 'makeDirectories', 'removeTree', 'stat'],
  mounts: ['mount', 'unmount', 'clone', 'list'],
  tools: ['run'],
  streams: ['pipe', 'duplicate', 'wholePipe'],
  consoles: ['listen'],
  exits: ['watch'],
  descriptors: ['store', 'storeAll'],
}

/** These calls are synchronous, so they can only fail. */
const AT_ONCE = ['streams', 'consoles', 'exits']

const LATE_TURNS = 5
/** Other calls proceed while a program runs. */
const RUN_TURNS = 4

/** One agent's view of the machine: its calls have faults, and nothing reaches a dead agent. */
export class MortalOs {
  readonly os: Os
  isDead = false
  hangs = false
  fault: Fault | undefined
  #calls = 0
  readonly #real: FakeOs

  constructor(real: FakeOs) {
    this.#real = real
    const parts = Object.entries(real).map(([name, part]) => [name, this.#mortal(part, FALLIBLE[name], name)])
    this.os = Object.fromEntries(parts) as Os
  }

  strike(fault: Fault | undefined): void {
    this.fault = fault
    this.#calls = 0
    this.#real.descriptors.refusal = fault?.what === 'the store is full' ? fault.errno : undefined
  }

  #mortal<Part extends object>(part: Part, fallible: readonly string[] = [], name = ''): Part {
    return new Proxy(part, {
      get: (target, key) => {
        const member: unknown = Reflect.get(target, key, target)
        if (typeof member !== 'function') return member
        return (...args: unknown[]): unknown => {
          if (this.isDead) throw new Error(`${name}.${String(key)}: a dead agent has called`)
          const called = () => member.apply(target, args.map(this.#whileAlive))
          const call = name === 'tools' && key === 'run' ? () => later(called, RUN_TURNS) : called
          const fault = fallible.includes(String(key)) ? this.#next() : undefined
          const result = fault === undefined ? call() : this.#befall(fault, name, String(key), args, call)
          if (key === 'adopt') this.#tellEnded(Number(args[0]))
          if (result instanceof Promise) return this.#answer(result, name === 'descriptors')
          return key === 'watch' && typeof result === 'object' && result !== null
            ? this.#mortal(result)
            : result
        }
      },
    })
  }

  /** vminit reports a process that ended before it was adopted. */
  #tellEnded(pid: number): void {
    if (!this.#real.system.processes.has(pid)) this.#real.exits.exit(pid, { code: 255 })
  }

  #next(): Fault | undefined {
    this.#calls += 1
    return this.fault?.at === this.#calls && this.fault.what !== 'the store is full' ? this.fault : undefined
  }

  #befall(fault: Fault, part: string, name: string, args: unknown[], call: () => unknown): unknown {
    if (part === 'descriptors') return this.#befallStore(fault, name, call)
    const { what, errno } = fault
    const failure = kernelError(name, String(args[0]), errno)
    if (AT_ONCE.includes(part)) {
      if (what !== 'fails') return call()
      throw failure
    }
    if (what === 'fails') return Promise.reject(failure)
    if (what === 'is late') return later(call, LATE_TURNS)
    const killed = part === 'tools' ? this.#untilKilled(args[1]) : undefined
    this.hangs ||= killed === undefined
    return killed ?? new Promise(() => {})
  }

  /** The agent's signal or its timeout kills a program that never ends. */
  #untilKilled(options: unknown): Promise<never> | undefined {
    if (typeof options !== 'object' || options === null) return undefined
    const killed = 'signal' in options && options.signal instanceof AbortSignal ? options.signal : undefined
    const timeoutMs = 'timeoutMs' in options ? options.timeoutMs : undefined
    if (timeoutMs === undefined) return killed && aborted(killed)
    const late = () => Promise.reject(kernelError('run', 'a program', 'ETIMEDOUT'))
    return this.#real.clock.sleep(Number(timeoutMs), killed).then(late)
  }

  #befallStore({ what, errno }: Fault, name: string, call: () => unknown): unknown {
    const { descriptors } = this.#real
    if (what === 'fails') descriptors.refusal = errno
    let answer: unknown
    try {
      answer = call()
    } finally {
      descriptors.refusal = undefined
    }
    if (name === 'storeAll') return answer
    if (what === 'is late') return later(() => answer, LATE_TURNS)
    if (what === 'is never answered') {
      this.hangs = true
      return new Promise(() => {})
    }
    return answer
  }

  /** Settles only while the agent lives. */
  #answer(result: Promise<unknown>, needNotBeHandled: boolean): Promise<unknown> {
    const { promise, resolve, reject } = Promise.withResolvers<unknown>()
    const whileAlive = (settle: (outcome: unknown) => void) => (outcome: unknown) => {
      if (!this.isDead) settle(outcome)
    }
    result.then(whileAlive(resolve), whileAlive(reject))
    if (needNotBeHandled) promise.catch(() => {})
    return promise
  }

  readonly #whileAlive = (argument: unknown): unknown =>
    typeof argument === 'function'
      ? (...args: unknown[]) => (this.isDead ? undefined : argument(...args))
      : argument
}

async function later(call: () => unknown, turns: number): Promise<unknown> {
  for (let count = 0; count < turns; count++) await turn()
  return call()
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    if (signal.aborted) reject(signal.reason)
    signal.addEventListener('abort', () => reject(signal.reason), { once: true })
  })
}
