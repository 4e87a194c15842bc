import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  type AgentPod,
  cgroupsOf,
  leftoversOf,
  NOTHING_LEFT,
  startPod,
} from '../../support/host/agent-pod.ts'
import { underAttack } from '../../support/hostile/attack.ts'
import { hostTarget } from '../../support/hostile/host-target.ts'

/** Stops the runtime's processes in the container before they execute its program, and prints a line. */
const STOP_RUNTIMES = `echo ready; while :; do
  for folder in /proc/[0-9]*; do
    read -r name < $folder/comm && case $name in runc*|crun*|[0-9]*) kill -STOP \${folder#/proc/} && echo stopped; esac
  done
done 2>/dev/null`

/** A call that takes this long is unbounded. */
const MUCH_TOO_LATE_MS = 30_000

describe.each(['runc', 'crun'])('a container that stops every process that %s adds to it', (runtime) => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod({ runtime })
  })
  afterAll(() => pod.stop())

  async function runStopping(id: string): Promise<{ readonly stuck: Promise<unknown> }> {
    const init = await pod.run(id, ['sh', '-c', STOP_RUNTIMES])
    await init.readUntil('ready\n')
    const isStopped = init.readUntil('stopped\n').then(() => true)
    for (let number = 0; ; number++) {
      const call = pod.add(id, `e${number}`, ['true'])
      const ended = call.then(
        () => undefined,
        (error: unknown) => error,
      )
      if (await Promise.race([isStopped, ended.then(() => false)])) return { stuck: ended }
    }
  }

  function bounded<T>(call: Promise<T>): Promise<T | string> {
    return Promise.race([call, sleep(MUCH_TOO_LATE_MS, 'no answer', { ref: false })])
  }

  it('is removed at once, with a pause and an exec under way', async () => {
    const target = await hostTarget(pod.started)
    const left = () => Object.values(leftoversOf(pod.started, 'hostile')).flat().length
    const { result } = await underAttack(
      `${runtime}'s processes stopped, removed`,
      target,
      async () => {
        const { stuck } = await runStopping('hostile')
        const paused = pod.agent.pauseContainer({ containerId: 'hostile' }).catch((error: unknown) => error)
        const removed = await bounded(pod.remove('hostile'))
        return { removed, stuck: await bounded(stuck), paused: await bounded(paused) }
      },
      left,
    )
    expect(result).toEqual({
      removed: undefined,
      stuck: expect.objectContaining({ code: 'INTERNAL', message: 'container hostile is to be removed' }),
      paused: expect.objectContaining({ code: 'INTERNAL', message: 'container hostile is to be removed' }),
    })
    expect(leftoversOf(pod.started, 'hostile')).toEqual(NOTHING_LEFT)
    target.close()
  })

  it('does not keep DestroySandbox waiting', async () => {
    const ids = ['hostile-1', 'hostile-2']
    for (const id of ids) await runStopping(id)
    expect(await bounded(pod.agent.destroySandbox({}))).toEqual({})
    expect(await bounded(pod.started.exited)).toBe(0)
    expect(ids.flatMap((id) => cgroupsOf(id, pod.started))).toEqual([])
  })
})
