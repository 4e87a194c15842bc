import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { SIGKILL } from '../../../src/base/signals.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { containerRequest, type Machine, machineWithSandbox } from '../../support/handlers/machine.ts'

const fileOf = (id: string) => `/sys/fs/cgroup/memory/containers/${id}/memory.oom_control`

async function killByOom({ os }: Machine, id: string): Promise<void> {
  await os.files.put(fileOf(id), 'oom_kill_disable 0\nunder_oom 0\noom_kill 1\n')
  os.cgroupEvents.happen(fileOf(id))
}

async function start({ os, handlers }: Machine, id: string): Promise<void> {
  await handlers.createContainer(containerRequest(id), neverAborted)
  await os.files.put(fileOf(id), 'oom_kill_disable 0\nunder_oom 0\noom_kill 0\n')
  await handlers.startContainer({ containerId: id }, neverAborted)
}

describe('GetOOMEvent', () => {
  it('returns the container that ran out of memory', async () => {
    const made = await machineWithSandbox()
    const polling = made.handlers.getOomEvent({}, neverAborted)
    await start(made, 'c1')
    await start(made, 'c2')
    await killByOom(made, 'c2')
    expect((await polling).containerId).toBe('c2')
  })

  it('keeps an OOM event whose answer was not delivered', async () => {
    const made = await machineWithSandbox()
    await start(made, 'c1')
    await killByOom(made, 'c1')
    const lost = await made.handlers.getOomEvent({}, neverAborted)
    lost.dropped()
    expect((await made.handlers.getOomEvent({}, neverAborted)).containerId).toBe('c1')
  })

  it('watches a container before its start, but not the sandbox’s own container', async () => {
    const made = await machineWithSandbox()
    const watched: (readonly string[])[] = []
    made.runtime.refuse = (verb) => {
      if (verb === 'start') watched.push(made.os.cgroupEvents.watched)
      return undefined
    }
    await start(made, 'pod')
    await start(made, 'c1')
    expect(watched).toEqual([[], [fileOf('c1')]])
  })

  it('reports a kill that also ends the container', async () => {
    const made = await machineWithSandbox()
    await start(made, 'c1')
    await made.os.files.put(fileOf('c1'), 'oom_kill 1\n')
    made.runtime.end(made.runtime.last().pid, { signal: 9 })
    expect((await made.handlers.getOomEvent({}, neverAborted)).containerId).toBe('c1')
  })

  it('stops watching after a failed start or a removal', async () => {
    const made = await machineWithSandbox()
    made.runtime.refuse = (verb) => (verb === 'start' ? { exitCode: 1 } : undefined)
    await expect(start(made, 'c1')).rejects.toMatchObject({ code: 'INTERNAL' })
    expect(made.os.cgroupEvents.watched).toEqual([])
    made.runtime.refuse = () => undefined
    await made.handlers.startContainer({ containerId: 'c1' }, neverAborted)
    expect(made.os.cgroupEvents.watched).toEqual([fileOf('c1')])
    await made.handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    expect(made.os.cgroupEvents.watched).toEqual([])
  })

  it('lets a container start that cannot be watched', async () => {
    const made = await machineWithSandbox()
    await made.handlers.createContainer(containerRequest('c1'), neverAborted)
    await made.handlers.startContainer({ containerId: 'c1' }, neverAborted)
    expect(made.context.containers.tryGet('c1')?.state.name).toBe('running')
  })

  it.each(['waits', 'comes later'])(
    'returns an event that cannot be recorded to a caller that %s',
    async (when) => {
      const made = await machineWithSandbox()
      await start(made, 'c1')
      made.state.beforeChange = (path) => {
        throw kernelError('write', path, 'EIO')
      }
      const waiting = when === 'waits' ? made.handlers.getOomEvent({}, neverAborted) : undefined
      await killByOom(made, 'c1')
      await new Promise(setImmediate)
      const taken = await (waiting ?? made.handlers.getOomEvent({}, neverAborted))
      taken.delivered()
      expect(taken.containerId).toBe('c1')
      // The container's end reads the counter once more.
      made.runtime.end(made.runtime.last().pid, { signal: SIGKILL })
      expect((await made.handlers.waitProcess({ containerId: 'c1', execId: '' }, neverAborted)).status).toBe(
        137,
      )
    },
  )

  it('fails when the sandbox is destroyed: INTERNAL, without text', async () => {
    const made = await machineWithSandbox()
    const polling = made.handlers.getOomEvent({}, neverAborted)
    const ended = expect(polling).rejects.toMatchObject({ code: 'INTERNAL', message: '' })
    await made.handlers.destroySandbox({}, neverAborted)
    await ended
  })
})
