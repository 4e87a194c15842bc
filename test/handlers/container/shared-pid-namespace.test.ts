import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { AgentError } from '../../../src/base/errors.ts'
import { SIGKILL } from '../../../src/base/signals.ts'
import { containerRequest, type Machine, machineWithSandbox } from '../../support/handlers/machine.ts'

const PIN = '/run/sandbox-ns/pid'

const sharing = { sandboxPidns: true }

function create({ handlers }: Machine, id: string, request = {}, signal = neverAborted): Promise<void> {
  return handlers.createContainer(containerRequest(id, {}, request), signal)
}

async function joinedBy({ os }: Machine, id: string): Promise<string | undefined> {
  const config = JSON.parse(await os.files.readText(`/run/kata-containers/${id}/config.json`))
  const entry = config.linux.namespaces.find(({ type }: { type: string }) => type === 'pid')
  return entry.path
}

const pinned = ({ os }: Machine) =>
  os.mounts.requests.filter(({ target }) => target === PIN).map(({ source }) => source)

/** A sandbox whose first container is being created: the runtime waits for `answer`. */
async function withFirstAtRuntime() {
  const made = await machineWithSandbox()
  const [called, answer] = [Promise.withResolvers<void>(), Promise.withResolvers<object | undefined>()]
  made.runtime.refuse = (verb) => {
    if (verb !== 'create') return undefined
    made.runtime.refuse = () => undefined
    called.resolve()
    return answer.promise
  }
  const first = create(made, 'c1', sharing)
  await called.promise
  return { made, first, answer: answer.resolve }
}

describe('the pid namespace of a sandbox', () => {
  it('is that of the first container, for containers that ask for it', async () => {
    const made = await machineWithSandbox()
    await create(made, 'c1')
    await create(made, 'c2', sharing)
    await create(made, 'c3')
    const joined = [await joinedBy(made, 'c1'), await joinedBy(made, 'c2'), await joinedBy(made, 'c3')]
    expect(joined).toEqual([undefined, PIN, undefined])
    expect(pinned(made)).toEqual(['/proc/1001/ns/pid'])
  })

  it('is awaited by containers that ask for it while the first one is being created', async () => {
    const { made, first, answer } = await withFirstAtRuntime()
    const second = create(made, 'c2', sharing)
    await create(made, 'c3')
    answer(undefined)
    await Promise.all([first, second])
    expect(await joinedBy(made, 'c2')).toBe(PIN)
    const { pid } = made.runtime.processes.find(({ containerId }) => containerId === 'c1') ?? {}
    expect(pinned(made)).toEqual([`/proc/${pid}/ns/pid`])
  })

  it('is no longer awaited once the call is cancelled', async () => {
    const { made, first, answer } = await withFirstAtRuntime()
    const caller = new AbortController()
    const reason = new AgentError('DEADLINE_EXCEEDED', 'timeout')
    const second = create(made, 'c2', sharing, caller.signal)
    // The second container waits once a container that does not share is created.
    await create(made, 'c3')
    caller.abort(reason)
    await expect(second).rejects.toBe(reason)
    answer(undefined)
    await first
  })

  it('is that of the next container that asks when the creation of the first one fails', async () => {
    const { made, first, answer } = await withFirstAtRuntime()
    const others = [create(made, 'c2', sharing), create(made, 'c3', sharing)]
    answer({ exitCode: 1 })
    await expect(first).rejects.toThrow('create')
    await Promise.all(others)
    expect([await joinedBy(made, 'c2'), await joinedBy(made, 'c3')]).toEqual([undefined, PIN])
    expect(pinned(made)).toHaveLength(1)
  })

  it('is refused when it has ended with its first container', async () => {
    const made = await machineWithSandbox()
    await create(made, 'pause', sharing)
    made.runtime.end(made.runtime.last().pid, { signal: SIGKILL })
    await expect(create(made, 'c2', sharing)).rejects.toMatchObject({
      code: 'INTERNAL',
      message:
        'Sandbox does not have sandbox_pidns: it ended with container pause, which is to be removed first',
    })
    await create(made, 'c3')
  })

  it('is made anew once its first container is removed', async () => {
    const made = await machineWithSandbox()
    await create(made, 'c1', sharing)
    await create(made, 'c2', sharing)
    await made.handlers.removeContainer({ containerId: 'c2', timeout: 0 }, neverAborted)
    expect(made.os.mounts.isMountPoint(PIN)).toBe(true)
    await made.handlers.removeContainer({ containerId: 'c1', timeout: 0 }, neverAborted)
    expect(made.os.mounts.isMountPoint(PIN)).toBe(false)
    await create(made, 'c3', sharing)
    await create(made, 'c4', sharing)
    expect([await joinedBy(made, 'c3'), await joinedBy(made, 'c4')]).toEqual([undefined, PIN])
  })
})
