import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { SIGKILL } from '../../../src/base/signals.ts'
import { RemoteProcess } from '../../support/containers/pod.ts'
import { type AgentPod, leftoversOf, NOTHING_LEFT, startPod } from '../../support/host/agent-pod.ts'
import type { AgentConnection } from '../../support/host/agent-process.ts'

const LIMIT = 8n << 20n
const HOG = ['dd', 'if=/dev/zero', 'of=/dev/null', 'bs=64M', 'count=1']

const ORDINARY = Array.from({ length: 48 }, (_, number) => `crowd-${number}`)
const HUNGRY = 'crowd-hungry'
const HELD = 'crowd-held'
const ALL = [...ORDINARY, HUNGRY, HELD]

describe('fifty containers at once', () => {
  let pod: AgentPod
  let pollers: AgentConnection
  beforeAll(async () => {
    pod = await startPod()
    pollers = await pod.started.connect()
    // The answer shows that the agent has accepted the connection, one of its open files from then on.
    await pollers.health.check({ service: '' })
    // After its boot the agent asks the runtime for its version, whose pidfd and pipes are gone after a container's life.
    await live(pod, 'first', 0)
    await vi.waitFor(() => expect(pod.started.openFiles()).not.toContain('anon_inode:[pidfd]'))
  })
  afterAll(async () => {
    pollers.close()
    await pod.stop()
  })

  it('run, get processes and are removed while one creation hangs, and leave nothing', async () => {
    const filesBefore = pod.started.openFiles()
    const held = hold(pod)
    const starving = starve(pod)
    const oom = pollers.agent.getOOMEvent({})
    let isOver = false
    const polls = [0, 1, 2].map((first) => pollStats(pollers.agent, first, () => isOver))
    const lives = ORDINARY.map((id, number) => live(pod, id, number))

    expect(await Promise.all(lives)).toEqual(ORDINARY.map((id, number) => lifeOf(id, number)))
    expect(await starving).toBe(128 + SIGKILL)
    expect((await oom).containerId).toBe(HUNGRY)
    // All other containers have ended, so none of them waited for this container.
    expect(held.isCreated()).toBe(false)
    isOver = true
    for (const answered of await Promise.all(polls)) expect(answered).toBeGreaterThan(0)

    await held.release()
    await pod.agent.startContainer({ containerId: HELD })
    expect(await new RemoteProcess(pod.agent, HELD).wait()).toBe(7)
    await pod.remove(HELD)
    expect(leftoversOf(pod.started, ...ALL)).toEqual(NOTHING_LEFT)
    expect(pod.started.openFiles()).toEqual(filesBefore)
  })
})

interface Life {
  readonly output: string
  readonly status: number
  readonly added: string
  readonly addedStatus: number
}

function lifeOf(id: string, number: number): Life {
  return { output: `${id} hears\n`, status: number, added: `added to ${id}\n`, addedStatus: 100 + number }
}

async function live(pod: AgentPod, id: string, number: number): Promise<Life> {
  const init = await pod.run(id, ['sh', '-c', `read line; echo ${id} $line; exit ${number}`])
  const added = await pod.add(id, 'e', ['sh', '-c', `echo added to ${id}; exit ${100 + number}`])
  const addedOutput = (await added.readAll()).toString()
  const addedStatus = await added.wait()
  await init.write('hears\n')
  const output = (await init.readAll()).toString()
  const status = await init.wait()
  await pod.remove(id)
  return { output, status, added: addedOutput, addedStatus }
}

async function starve(pod: AgentPod): Promise<number> {
  const linux = { Resources: { Memory: { Limit: LIMIT, Swap: LIMIT } } }
  const status = await (await pod.run(HUNGRY, HOG, { linux })).wait()
  await pod.remove(HUNGRY)
  return status
}

function hold(pod: AgentPod): { isCreated(): boolean; release(): Promise<void> } {
  const gate = join(pod.root, 'tmp/gate')
  execFileSync('mkfifo', [gate])
  const hook = { Path: `${pod.root}/bin/busybox`, Args: ['sh', '-c', `read line < ${gate}`] }
  let isCreated = false
  const creating = pod
    .create(HELD, ['sh', '-c', 'exit 7'], { spec: { Hooks: { CreateRuntime: [hook] } } })
    .then(() => {
      isCreated = true
    })
  return {
    isCreated: () => isCreated,
    release: async () => {
      writeFileSync(gate, 'open\n')
      await creating
    },
  }
}

/** Polls the statistics of the containers in turn until `isOver`. Returns the number of successful answers. */
async function pollStats(
  agent: AgentConnection['agent'],
  first: number,
  isOver: () => boolean,
): Promise<number> {
  let answered = 0
  for (let turn = first; !isOver(); turn++) {
    const containerId = ALL[turn % ALL.length] ?? ''
    const answer = await agent.statsContainer({ containerId }).catch((error: unknown) => error)
    if (!(answer instanceof Error)) answered++
    else expect(answer).toMatchObject({ code: 'INVALID_ARGUMENT', message: 'invalid container id' })
  }
  return answered
}
