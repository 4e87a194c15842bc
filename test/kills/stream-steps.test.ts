import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { closeSync, openSync, readSync, writeSync } from 'node:fs'
import type { Socket } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { projectRoot } from '../../src/build/project.ts'
import { type AgentPod, leftoversOf, NOTHING_LEFT, startPod } from '../support/host/agent-pod.ts'
import {
  type HostPorts,
  listenForMany,
  type ManyConnections,
  makeHostPorts,
} from '../support/host/host-ports.ts'
import { ResumingReader, ResumingWriter } from '../support/host/resuming-host.ts'
import { AS_LONG_AS_ASKED_MS, oneRun, randomOf, shareOf, Tally } from '../support/kills/share.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const [STDIN, STDOUT] = [1, 2]
/** More than what Node reads of a socket that nobody reads, less than what an output holds. */
const BYTES = 200_000
/** A step that no loss has: the agent lives, and its steps are counted. */
const NONE = 0xffff_ffff
const LOSSES = ['Attach', 'Detach'] as const

const share = shareOf('steps')
/** A loss has some hundred steps. More rounds over them tell nothing new. */
const MOST_OF_A_LOSS = 500
/** Of each loss. A small share dies at some of the steps, a large one at each several times. */
const kills = Math.min(Math.ceil(share / 4), MOST_OF_A_LOSS)

describe.skipIf(share === 0)('streams that resume, whose agent dies at a step of a loss', () => {
  let host: HostPorts
  let pod: AgentPod
  let plan: number
  let listening: readonly [ManyConnections, ManyConnections]
  beforeAll(async () => {
    const folder = temporaryFolder()
    const library = join(folder, 'die-in-stream.so')
    const source = join(projectRoot, 'test/support/kills/die-in-stream.c')
    execFileSync('cc', ['-shared', '-fPIC', '-O2', '-Wall', '-Werror', '-o', library, source])
    const file = join(folder, 'plan')
    plan = openSync(file, 'w+')
    writeSync(plan, Buffer.alloc(40))
    host = makeHostPorts({ stream_grace: '{ secs = 300 }', stream_resume: 'true' })
    const environment = { LD_PRELOAD: library, STREAM_STEPS: file }
    pod = await startPod({ settings: host.settings, environment })
    await pod.run('host', ['sleep', '1000000'])
    const [stdin, stdout] = [STDIN, STDOUT].map((port) => listenForMany(join(host.folder, `port_${port}`)))
    listening = [await (stdin ?? expect.fail()), await (stdout ?? expect.fail())]
  })
  afterAll(async () => {
    await pod?.stop()
    for (const each of listening ?? []) each.close()
    if (plan !== undefined) closeSync(plan)
    host?.remove()
  })

  const setPlan = (dieAt: number) => {
    const bytes = Buffer.alloc(8)
    bytes.writeUInt32LE(dieAt)
    writeSync(plan, bytes, 0, 8, 0)
  }
  /** How many steps there were, and at which one the agent has died: undefined while it lives. */
  const progress = () => {
    const bytes = Buffer.alloc(40)
    readSync(plan, bytes, 0, 40, 0)
    const died = bytes.readUInt32LE(0) === 0 ? bytes.toString('latin1', 8).replace(/\0.*$/s, '') : undefined
    return { died, steps: bytes.readUInt32LE(4) }
  }

  it('lose and repeat no byte', { timeout: AS_LONG_AS_ASKED_MS }, async () => {
    const random = randomOf('stream-steps')
    const tally = new Tally('steps of lost streams')
    const bytes = randomBytes((BYTES + 1) * (LOSSES.length * (kills + 1) + 1))
    const [writer, reader] = [new ResumingWriter(bytes), new ResumingReader()]
    await pod.add('host', 'cat', ['cat'], { ports: { stdinPort: STDIN, stdoutPort: STDOUT } })
    const [stdin, stdout] = listening
    let into: Socket | undefined
    let out: Socket | undefined

    // A connection that a dead agent has made ends before its opening.
    const write = async (until: number) => {
      while (writer.acknowledged < until) {
        into ??= await stdin.next()
        await writer.writeUntil(into, until).catch(() => {})
        if (writer.acknowledged < until) into = undefined
      }
    }
    const read = async (until: number) => {
      while (reader.total < until) {
        out ??= await stdout.next()
        await reader.read(out, until).catch(() => {})
        if (reader.total < until) out = undefined
      }
    }
    /** Attach with ports drops connections as a lost device does, with the bytes that are on their way. */
    const loseAll = async (how: (typeof LOSSES)[number]) => {
      const { lifecycle } = pod.started
      if (how === 'Detach') await lifecycle.detach({ timeoutMs: 60_000 }).catch(() => {})
      const streams =
        how === 'Detach' ? [] : [STDIN, STDOUT].map((port) => ({ oldPort: port, newPort: port }))
      while (!(await isDone(lifecycle.attach({ streams }))));
    }

    await write(BYTES / 2)
    await read(BYTES / 2)
    /** Loses all in one way, with an agent that dies at a step, and goes on until a byte has gone the new way. */
    const lose = async (how: (typeof LOSSES)[number], step: number) => {
      const until = writer.acknowledged + BYTES
      await write(until)
      setPlan(step)
      const goOn = async () => {
        await Promise.all([loseAll(how), read(until)])
        await Promise.all([write(until + 1), read(until + 1)])
      }
      await oneRun(`${how}, step ${step}`, pod.started, goOn())
      const { died, steps } = progress()
      setPlan(0)
      const isRight = reader.bytes.equals(bytes.subarray(0, reader.total))
      expect(isRight, `${how}, step ${step}: ${died}`).toBe(true)
      return { died, steps }
    }
    let expected = 0
    for (const how of LOSSES) {
      const { steps } = await lose(how, NONE)
      for (let kill = 1; kill <= kills; kill++) {
        const step =
          kills >= steps ? 1 + ((kill - 1) % steps) : 1 + Math.floor((steps * (kill - random())) / kills)
        const { died } = await lose(how, step)
        tally.add(died === undefined ? 0 : 1)
        expected += 1
      }
    }
    tally.end()
    // How many steps there are depends on how the bytes arrive.
    expect(tally.kills).toBeGreaterThan(expected / 2)
  })

  it('leave nothing behind', async () => {
    await pod.remove('host')
    await expect.poll(() => leftoversOf(pod.started, 'host'), { timeout: 20_000 }).toEqual(NOTHING_LEFT)
  })
})

function isDone(call: Promise<unknown>): Promise<boolean> {
  return call.then(
    () => true,
    () => false,
  )
}
