import type { Os } from '../../src/os/os.ts'

export interface Faults {
  readonly count: number
  /** The number of the call to strike at, from 1; 0 for none. */
  at: number
  /** Runs before that call. When it throws, the call is not made. */
  strike: (what: string) => void
  /** Counts a call outside of `Os`. */
  step: (what: string) => void
}

/** The calls that may fail, by part. Closing and probing never fail. */
const ASYNCHRONOUS: Counted = {
  files: ['readText', 'write', 'makeDirectories', 'makeDirectory', 'removeTree', 'lstat', 'stat', 'list'],
  scratch: ['readText', 'write', 'replace', 'makeDirectory', 'makeDirectories', 'removeTree', 'stat'],
  mounts: ['mount', 'unmount', 'clone', 'list'],
  tools: ['run'],
  hostSockets: ['connect'],
}
const SYNCHRONOUS: Counted = {
  streams: ['pipe', 'duplicate', 'wholePipe'],
  consoles: ['listen'],
  exits: ['watch'],
}
const ANSWERED: Counted = { descriptors: ['store', 'storeAll'] }

type Counted = Readonly<Partial<Record<keyof Os, readonly string[]>>>

export function faultyOs(os: Os): { readonly os: Os; readonly faults: Faults } {
  const count = (what: string) => {
    faults.count += 1
    if (faults.count === faults.at) faults.strike(what)
  }
  const faults: { count: number } & Faults = { count: 0, at: 0, strike: () => {}, step: count }
  const parts = [
    ...wrapped(os, ASYNCHRONOUS, rejecting, count),
    ...wrapped(os, SYNCHRONOUS, throwing, count),
    ...wrapped(os, ANSWERED, refusing, count),
  ]
  const { clock, system, supervisor, network, uevents, cgroupEvents, volumes } = os
  return {
    os: {
      ...{ clock, system, supervisor, network, uevents, cgroupEvents, volumes },
      ...Object.fromEntries(parts),
    } as Os,
    faults,
  }
}

type Call = (...args: unknown[]) => unknown

/** Runs `before`, which may throw, ahead of a call. */
type Before = (call: Call, before: (args: unknown[]) => void) => Call

const throwing: Before =
  (call, before) =>
  (...args) => {
    before(args)
    return call(...args)
  }

const rejecting: Before =
  (call, before) =>
  async (...args) => {
    before(args)
    return call(...args)
  }

/** Counts the call twice if it has an answer: it may fail at once, or through that. */
const refusing: Before =
  (call, before) =>
  (...args) => {
    before(args)
    const called = call(...args)
    if (!(called instanceof Promise)) return called
    const answer = called.then(() => before(args))
    answer.catch(() => {})
    return answer
  }

function wrapped(os: Os, counted: Counted, wrap: Before, count: (what: string) => void): [string, object][] {
  return Object.entries(counted).map(([name, methods]) => {
    const part = os[name as keyof Os]
    const proxy = new Proxy(part, {
      get(target, key) {
        const member: unknown = Reflect.get(target, key, target)
        if (typeof member !== 'function') return member
        const call: Call = member.bind(target)
        if (typeof key !== 'string' || !methods.includes(key)) return call
        return wrap(call, (args) => count(`${name}.${key} ${String(args[0])}`))
      },
    })
    return [name, proxy]
  })
}
