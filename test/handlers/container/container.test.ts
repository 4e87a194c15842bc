import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { kernelError } from '../../../src/os/errors.ts'
import type { SandboxCalls } from '../../support/handlers/bound-calls.ts'
import { containerRequest, type Machine, machineWithSandbox } from '../../support/handlers/machine.ts'

const c1 = { containerId: 'c1' }
const removal = { ...c1, timeout: 0 }
const EIO = { errno: 'EIO' }

type Earlier = readonly ('startContainer' | 'pauseContainer')[]

async function machineAfter(...calls: Earlier): Promise<Machine> {
  const made = await machineWithSandbox()
  await made.handlers.createContainer(containerRequest('c1'), neverAborted)
  for (const call of calls) await made.handlers[call](c1, neverAborted)
  return made
}

/** Breaks the writing of records from the runtime's next run of `verb` on. */
function breakRecordsAt({ runtime, state }: Machine, verb: string, exitCode: number): void {
  runtime.refuse = (called) => {
    if (called !== verb) return undefined
    state.beforeChange = (path) => {
      throw kernelError('write', path, 'EIO')
    }
    return exitCode === 0 ? undefined : { exitCode }
  }
}

function repair({ runtime, state }: Machine): void {
  runtime.refuse = () => undefined
  state.beforeChange = () => {}
}

type Transition = readonly [
  verb: string,
  exitCode: number,
  before: Earlier,
  call: (calls: SandboxCalls) => Promise<unknown>,
]

const TRANSITIONS: readonly Transition[] = [
  ['start', 0, [], (calls) => calls.startContainer(c1, neverAborted)],
  ['start', 1, [], (calls) => calls.startContainer(c1, neverAborted)],
  ['pause', 0, ['startContainer'], (calls) => calls.pauseContainer(c1, neverAborted)],
  ['pause', 1, ['startContainer'], (calls) => calls.pauseContainer(c1, neverAborted)],
  ['resume', 0, ['startContainer', 'pauseContainer'], (calls) => calls.resumeContainer(c1, neverAborted)],
  ['delete', 1, ['startContainer'], (calls) => calls.removeContainer(removal, neverAborted)],
  // The outcome of a call with a number is recorded too.
  ['delete', 0, ['startContainer'], (calls) => calls.removeContainer(removal, neverAborted, 7n)],
]

describe('a container whose record cannot be written', () => {
  it.each(TRANSITIONS)(
    'fails the call, and can be removed: %s (exit code %i)',
    async (verb, exitCode, before, call) => {
      const made = await machineAfter(...before)
      breakRecordsAt(made, verb, exitCode)
      await expect(call(made.handlers)).rejects.toMatchObject(EIO)
      repair(made)
      await made.handlers.removeContainer(removal, neverAborted)
      expect(made.context.containers.list()).toEqual([])
    },
  )

  it('is gone once the runtime has deleted it, for calls that wait too', async () => {
    const made = await machineAfter('startContainer')
    breakRecordsAt(made, 'delete', 0)
    const both = [removal, removal].map((request) => made.handlers.removeContainer(request, neverAborted))
    const [first, second] = await Promise.allSettled(both)
    expect(first).toMatchObject({ reason: EIO })
    expect(second).toMatchObject({ reason: { message: 'Invalid container id' } })
    repair(made)
    await made.handlers.createContainer(containerRequest('c1'), neverAborted)
  })

  it('is not made, and its id is free again', async () => {
    const made = await machineWithSandbox()
    breakRecordsAt(made, 'create', 0)
    const creating = made.handlers.createContainer(containerRequest('c1'), neverAborted)
    const waiting = made.handlers.waitProcess({ ...c1, execId: '' }, neverAborted)
    await expect(creating).rejects.toMatchObject(EIO)
    await expect(waiting).rejects.toThrow('Invalid container id')
    repair(made)
    await made.handlers.createContainer(containerRequest('c1'), neverAborted)
  })
})
