import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { benchPod } from '../support/bench-pod.ts'
import { report } from '../support/figure.ts'

/** The agent's resident memory by origin, with 50 containers, and for each further container and process up to 200. */
const MOST = 200
const AT_ONCE = 4
const IDLE = ['/bin/sleep', '1000000']
/** The agent gives memory back while it is idle. */
const SETTLE_MS = 5000

const pod = await benchPod()
try {
  await pod.run('container-0', IDLE)
  const one = await residentMib()
  report({
    figure: 'agent with 1 idle container',
    unit: 'MiB',
    value: sum(one),
    floor: 48,
    limit: 1,
    phases: one,
  })
  await grow(1, 50, (number) => pod.run(`container-${number}`, IDLE))
  const fifty = await residentMib()
  report({
    figure: 'agent with 50 idle containers',
    unit: 'MiB',
    value: sum(fifty),
    floor: 60,
    limit: 1,
    phases: fifty,
  })
  await grow(50, MOST, (number) => pod.run(`container-${number}`, IDLE))
  const containers = await residentMib()
  each('own memory for each further container', 96, one, containers)
  await grow(0, MOST, (number) => pod.add('container-0', `exec-${number}`, IDLE))
  each('own memory for each further process', 48, containers, await residentMib())
} finally {
  await pod.stop()
}

/** Makes the things from number `from` up to `to`, some at once. */
async function grow(from: number, to: number, make: (number: number) => Promise<unknown>): Promise<void> {
  for (let first = from; first < to; first += AT_ONCE) {
    const numbers = Array.from({ length: Math.min(AT_ONCE, to - first) }, (_, index) => first + index)
    await Promise.all(numbers.map(make))
  }
}

type Memory = Record<'node' | 'libraries' | 'malloc' | 'anonymous', number>

/** Of memory that no file backs. */
function each(figure: string, mostKib: number, before: Memory, after: Memory): void {
  const own = ({ malloc, anonymous }: Memory) => (malloc + anonymous) * 1024
  report({ figure, unit: 'KiB', value: (own(after) - own(before)) / MOST, floor: mostKib, limit: 1 })
}

/** Resident MiB by origin (man 5 proc, smaps). */
async function residentMib(): Promise<Memory> {
  await sleep(SETTLE_MS)
  const found: Memory = { node: 0, libraries: 0, malloc: 0, anonymous: 0 }
  let origin: keyof Memory = 'anonymous'
  for (const line of readFileSync(`/proc/${pod.started.agentPid()}/smaps`, 'utf8').split('\n')) {
    const mapping = /^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+ *(.*)$/.exec(line)
    if (mapping !== null) origin = originOf(mapping[1] ?? '')
    const kib = Number(/^Rss: +(\d+) kB/.exec(line)?.[1] ?? 0)
    found[origin] += kib / 1024
  }
  return found
}

function originOf(path: string): keyof Memory {
  if (path === '[heap]') return 'malloc'
  if (path.endsWith('/node')) return 'node'
  return path.startsWith('/') ? 'libraries' : 'anonymous'
}

function sum(parts: Memory): number {
  return Object.values(parts).reduce((total, part) => total + part, 0)
}
