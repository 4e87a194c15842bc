import { setImmediate } from 'node:timers/promises'
import { crc32 } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { checkJournal } from '../../../src/handlers/stdio/journal-page.ts'
import { restoreStdio } from '../../../src/handlers/stdio/restore-stdio.ts'
import type { Stdio } from '../../../src/handlers/stdio/stdio.ts'
import { StoredDescriptors } from '../../../src/handlers/stdio/stored-descriptors.ts'
import type { Fd } from '../../../src/os/streams/streams.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { callOf, numbered } from '../../support/handlers/call.ts'
import { type Death, MortalAgents } from './mortal-agent.ts'

const TERMINAL = [false, true] as const

/** A process with stored streams: pipes, or a terminal. The test plays the process. */
function processWith(hasTerminal: boolean) {
  const os = new FakeOs()
  const stored = new StoredDescriptors(os.descriptors, 'p1')
  let ends: readonly [Fd, Fd]
  if (hasTerminal) {
    const { master, slave } = os.streams.pty()
    const input = os.streams.duplicate(master)
    stored.put('master', master)
    stored.put('stdin', input)
    ends = [slave, slave]
  } else {
    const input = os.streams.pipe('child-reads', 7)
    const output = os.streams.pipe('child-writes')
    const error = os.streams.pipe('child-writes')
    stored.put('stdin', input.parentEnd)
    stored.put('stdout', output.parentEnd)
    stored.put('stderr', error.parentEnd)
    ends = [input.childEnd, output.childEnd]
  }
  const agents = new MortalAgents(os, ends)
  agents.end()
  const [stdin, stdout] = ends
  return { os, agents, stdin, stdout, restored: { key: 'p1', hasTerminal, pipeSizeBytes: 0 } }
}

async function turn(): Promise<void> {
  await setImmediate()
  await setImmediate()
}

/** The broker's requests; their outcomes outlive the agents. */
class Requests {
  readonly #open = new Set<bigint>()
  readonly #answered = new Map<bigint, 'written' | 'dropped'>()
  #last = 0n

  /** The unanswered requests in the order of their arrival, and new ones until there are `count`. */
  open(count: number): readonly bigint[] {
    while (this.#open.size < count) this.#open.add(++this.#last)
    return [...this.#open]
  }

  answer(number: bigint, outcome: 'written' | 'dropped'): void {
    this.#open.delete(number)
    this.#answered.set(number, outcome)
  }

  confirm(number: bigint): void {
    this.#answered.delete(number)
  }

  tell(stdio: Stdio): void {
    for (const [number, taken] of stdio.taken) {
      if (this.#open.has(number)) continue
      if (this.#answered.get(number) === 'written') taken.delivered()
      else taken.dropped()
    }
  }
}

/** Runs agents one after the other until `work` is done; resolves with the steps of the last agent. */
async function throughDeaths(
  { agents, restored }: Pick<ReturnType<typeof processWith>, 'agents' | 'restored'>,
  deaths: readonly Death[],
  work: (stdio: Stdio) => Promise<void>,
): Promise<number> {
  for (let life = 0; ; life++) {
    const agent = agents.start(deaths[life])
    try {
      const stdio = restoreStdio(agent.os, restored)
      await work(stdio)
      await turn()
      if (!agent.isDead()) return agent.steps()
    } catch (error) {
      if (!agent.isDead()) throw error
    }
    await turn()
  }
}

const OUTPUT = Buffer.from(Array.from({ length: 120 }, (_, index) => index + 1))

/** Reads the output by two requests at a time, drops some answers, and settles later answers first. */
async function readThrough(hasTerminal: boolean, deaths: readonly Death[]) {
  const made = processWith(hasTerminal)
  const requests = new Requests()
  const read: number[] = []
  let drops = 3
  let written = 0
  const steps = await throughDeaths(made, deaths, async (stdio) => {
    requests.tell(stdio)
    while (read.length < OUTPUT.length) {
      written += made.os.streams.tryWrite(made.stdout, OUTPUT.subarray(written, written + 20))
      const deadline = new AbortController()
      const pending = requests.open(2).map(async (number) => {
        const answer = await stdio.stdout.read(Number(number % 7n) + 3, callOf(deadline.signal, number))
        return { number, answer }
      })
      const outcomes = Promise.allSettled(pending)
      await turn()
      const late = new Error('late')
      deadline.abort(late)
      for (const outcome of (await outcomes).reverse()) {
        // A request that had to wait stays open, as if its answer were still to come.
        if (outcome.status === 'rejected' && outcome.reason === late) continue
        if (outcome.status === 'rejected') throw outcome.reason
        const { number, answer } = outcome.value
        const data = answer.read()
        const isDropped = number % 3n === 0n && drops-- > 0
        requests.answer(number, isDropped ? 'dropped' : 'written')
        if (!isDropped) read.push(...data)
        if (isDropped) answer.dropped()
        else answer.delivered()
        requests.confirm(number)
      }
    }
  })
  return { ...made, steps, read: read.sort((one, other) => one - other) }
}

const INPUT = Array.from({ length: 6 }, (_, index) => `write ${index};`)

/** Writes by two requests at a time while the process reads a few bytes at a time, then ends the input. */
async function writeThrough(hasTerminal: boolean, deaths: readonly Death[]) {
  const made = processWith(hasTerminal)
  const requests = new Requests()
  let text = ''
  let answered = 0
  const steps = await throughDeaths(made, deaths, async (stdio) => {
    requests.tell(stdio)
    while (answered < INPUT.length) {
      const pending = requests.open(2).map(async (number) => {
        const data = Buffer.from(INPUT[Number(number) - 1] ?? '')
        const { delivered: forget } = await stdio.stdin.write(data, numbered(number))
        requests.answer(number, 'written')
        if (data.length > 0) answered += 1
        forget()
        requests.confirm(number)
      })
      const outcomes = Promise.all(pending)
      outcomes.catch(() => {})
      let isOver = false
      const over = () => {
        isOver = true
      }
      outcomes.then(over, over)
      for (await turn(); !isOver; await turn()) {
        text += made.os.streams.tryRead(made.stdin, 3)?.toString() ?? ''
      }
      await outcomes
    }
    await stdio.stdin.end()
  })
  for (let data = made.os.streams.tryRead(made.stdin, 9); data !== undefined && data.length > 0; ) {
    text += data.toString()
    data = made.os.streams.tryRead(made.stdin, 9)
  }
  return { ...made, steps, text }
}

/** The deaths to try: before every step of the first agent, and at some later step of the second. */
function deathsOf(steps: number): readonly (readonly Death[])[] {
  return Array.from({ length: steps }, (_, index) => [
    { step: index + 1, when: 'before' },
    { step: 4 + (index % 25), when: 'after' },
  ])
}

describe.each(TERMINAL)('the streams of a process whose agent is killed (terminal: %s)', (hasTerminal) => {
  it('lose and repeat no byte of output, whatever the step', async () => {
    const { steps, read } = await readThrough(hasTerminal, [])
    expect(Buffer.from(read).equals(OUTPUT)).toBe(true)
    expect(steps).toBeGreaterThan(100)
    for (const deaths of deathsOf(steps)) {
      const after = await readThrough(hasTerminal, deaths)
      expect(Buffer.from(after.read).toString('hex'), JSON.stringify(deaths)).toBe(OUTPUT.toString('hex'))
    }
  }, 120_000)

  it('lose and repeat no byte of input, whatever the step', async () => {
    const { steps, text } = await writeThrough(hasTerminal, [])
    expect(text).toBe(INPUT.join(''))
    expect(steps).toBeGreaterThan(50)
    for (const deaths of deathsOf(steps)) {
      const after = await writeThrough(hasTerminal, deaths)
      expect(after.text, JSON.stringify(deaths)).toBe(INPUT.join(''))
    }
  }, 120_000)
})

async function restarted({ os, agents, restored }: ReturnType<typeof processWith>): Promise<Stdio> {
  agents.end()
  await turn()
  return restoreStdio(os, restored)
}

describe('a journal of the previous agent', () => {
  async function used() {
    const made = processWith(false)
    const first = restoreStdio(made.os, made.restored)
    made.os.streams.tryWrite(made.stdout, Buffer.from('shown'))
    await first.stdout.read(9, numbered(1n))
    await first.stdin.write(Buffer.from('typed'), numbered(2n))
    made.agents.end()
    await turn()
    const fileOf = (name: string) => {
      const fd = made.os.descriptors.take(name) ?? -1
      made.os.descriptors.handOver(name, fd)
      return fd
    }
    return { ...made, fileOf }
  }

  it.each([
    ['p1-stdout-data', 'cut', 'the journal is cut: 4095 bytes, want 4096'],
    ['p1-stdin-data', 'emptied', 'the journal is cut: 0 bytes, want 4096'],
    ['p1-stdin-data', 'damaged', 'record 1 of the journal is damaged: its checksum differs'],
    ['p1-stdout-data', 'of a later version', 'the journal has version 2, want 1'],
  ])('%s that is %s is refused by its name, and dropped', async (name, what, text) => {
    const { os, restored, fileOf } = await used()
    const fd = fileOf(name)
    if (what === 'cut') os.streams.truncate(fd, 4095)
    if (what === 'emptied') os.streams.truncate(fd, 0)
    if (what === 'damaged') os.streams.writeAt(fd, 32, Buffer.of(9))
    if (what === 'of a later version') {
      const record = os.streams.readAt(fd, 0, 32)
      record.writeUInt32LE(2, 20)
      record.writeUInt32LE(crc32(record.subarray(0, 28)), 28)
      os.streams.writeAt(fd, 0, record)
    }
    expect(() => restoreStdio(os, restored)).toThrow(`${name}: ${text}`)
    expect(os.descriptors.stored).not.toContain(name)
    await restoreStdio(os, restored).close()
    expect(os.descriptors.stored).toEqual([])
  })

  it.each(['p1-stdout-data', 'p1-stdin-data'])(
    '%s is refused when one of its bits is flipped',
    async (name) => {
      const { os, fileOf } = await used()
      const fd = fileOf(name)
      const page = os.streams.readAt(fd, 0, 4096)
      checkJournal(os.streams, fd)
      for (let bit = 0; bit < 160 * 8; bit++) {
        const at = bit >> 3
        os.streams.writeAt(fd, at, Buffer.of((page[at] ?? 0) ^ (1 << (bit & 7))))
        expect(() => checkJournal(os.streams, fd)).toThrow(/^record \d+ of the journal is damaged/)
        os.streams.writeAt(fd, at, page.subarray(at, at + 1))
      }
    },
  )
})

describe('restored streams', () => {
  it('answer a write that was done, also after the end of the input', async () => {
    const made = processWith(false)
    const first = restoreStdio(made.os, made.restored)
    await first.stdin.write(Buffer.from('once'), numbered(7n))
    await first.stdin.end()
    const next = await restarted(made)
    expect(next.taken.map(([number]) => number)).toEqual([7n])
    const { delivered } = await next.stdin.write(Buffer.from('once'), numbered(7n))
    expect(made.os.streams.tryRead(made.stdin, 9)?.toString()).toBe('once')
    expect(made.os.streams.tryRead(made.stdin, 9)?.length).toBe(0)
    await expect(next.stdin.write(Buffer.from('x'), numbered(8n))).rejects.toThrow('Cannot get writer')
    delivered()
    await turn()
    expect(made.os.descriptors.stored).toEqual(['p1-stderr', 'p1-stdout'])
  })

  it('throw away the rest of a write that is not sent again', async () => {
    const made = processWith(false)
    const first = restoreStdio(made.os, made.restored)
    first.stdin.write(Buffer.from('0123456789'), numbered(7n)).catch(() => {})
    await turn()
    const next = await restarted(made)
    for (const [, taken] of next.taken) taken.dropped()
    await turn()
    expect(made.os.streams.tryRead(made.stdin, 9)?.toString()).toBe('0123456')
    await next.stdin.write(Buffer.from('next'), numbered(8n))
    expect(made.os.streams.tryRead(made.stdin, 9)?.toString()).toBe('next')
  })

  it('are closed where the previous agent had closed them, and leave nothing in the store when they are', async () => {
    const made = processWith(true)
    const first = restoreStdio(made.os, made.restored)
    made.os.streams.tryWrite(made.stdout, Buffer.from('shown'))
    await first.stdout.read(9, numbered(1n))
    await first.stdin.write(Buffer.from('typed'), numbered(2n))
    const next = await restarted(made)
    expect(made.os.descriptors.stored).toHaveLength(6)
    await next.close()
    expect(made.os.descriptors.stored).toEqual([])
    const last = await restarted(made)
    const noReader = { message: 'cannot get stream reader' }
    await expect(last.stdout.read(1, callOf())).rejects.toMatchObject(noReader)
  })

  it('are stored as a whole once vminit has room again', async () => {
    const made = processWith(true)
    const { os } = made
    const stdio = restoreStdio(os, made.restored)
    os.streams.tryWrite(made.stdout, Buffer.from('shown'))
    os.descriptors.capacity = 3
    const full = { code: 'RESOURCE_EXHAUSTED' }
    await expect(stdio.stdout.read(9, numbered(1n))).rejects.toMatchObject(full)
    await expect(stdio.stdin.write(Buffer.from('x'), numbered(2n))).rejects.toMatchObject(full)
    expect(os.descriptors.stored).toEqual(['p1-master', 'p1-stdin'])
    os.descriptors.capacity = 9
    expect(Buffer.from((await stdio.stdout.read(9, numbered(3n))).read()).toString()).toBe('shown')
    await stdio.stdin.write(Buffer.from('typed'), numbered(4n))
    expect(os.descriptors.stored).toEqual([
      ...['p1-master', 'p1-stdin', 'p1-stdin-data', 'p1-stdin-pipe'],
      ...['p1-stdout-data', 'p1-stdout-pipe'],
    ])
    await stdio.close()
  })
})
