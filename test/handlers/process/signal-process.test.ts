import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { SIGKILL, SIGTERM } from '../../../src/base/signals.ts'
import { handlesSignal, signalProcess } from '../../../src/handlers/process/signal-process.ts'
import {
  containerRequest,
  execRequest,
  type Machine,
  machineWithContainer,
  machineWithSandbox,
} from '../../support/handlers/machine.ts'

const init = { containerId: 'c1', execId: '' }
const exec = { containerId: 'c1', execId: 'e1' }

describe('SignalProcess', () => {
  const sent = (made: Machine) => made.os.system.signals.map(({ pid, signal }) => [pid, signal])

  async function withThreeProcesses() {
    const made = await machineWithContainer()
    for (const execId of ['e1', 'e2'])
      await made.handlers.execProcess(execRequest('c1', execId), neverAborted)
    return made
  }

  it.each([
    ['', 1, 1],
    ['e1', SIGKILL, 1],
    // SIGKILL may be sent twice, also in place of an unhandled SIGTERM.
    ['', SIGKILL, 0],
    ['', SIGTERM, 0],
  ])('records before the signal that it must not be sent again (%j, %i)', async (execId, signal, times) => {
    const made = await withThreeProcesses()
    const sentBefore: number[] = []
    const request = { containerId: 'c1', execId, signal }
    await signalProcess(made.context, request, {
      beforeEffect: () => sentBefore.push(sent(made).length),
    })
    expect(sentBefore).toEqual(times === 0 ? [] : [0])
    expect(sent(made).length).toBeGreaterThan(0)
  })

  it.each([
    [
      'SIGKILL without an exec id to every process',
      '',
      SIGKILL,
      [
        [1001, 9],
        [1002, 9],
        [1003, 9],
      ],
    ],
    ['another signal without an exec id to the first process', '', 1, [[1001, 1]]],
    ['any signal with the container id as exec id to the first process', 'c1', SIGKILL, [[1001, 9]]],
    ['a signal with an exec id to that process', 'e2', SIGTERM, [[1003, 15]]],
  ])('sends %s', async (_what, execId, signal, expected) => {
    const made = await withThreeProcesses()
    await made.handlers.signalProcess({ containerId: 'c1', execId, signal }, neverAborted)
    expect(sent(made)).toEqual(expected)
  })

  it.each([
    ['SIGKILL in place of a SIGTERM that it does not handle', '0000000000000000', 9],
    ['a SIGTERM that it handles', '0000000000004000', 15],
  ])('sends the first process %s', async (_what, mask, expected) => {
    const made = await machineWithContainer()
    await made.os.files.put('/proc/1001/status', `SigBlk:\t0\nSigIgn:\t0\nSigCgt:\t${mask}\n`)
    await made.handlers.signalProcess({ ...init, signal: SIGTERM }, neverAborted)
    expect(sent(made)).toEqual([[1001, expected]])
  })

  it('sends nothing when the process ends during the check', async () => {
    const made = await machineWithContainer()
    const signalled = made.handlers.signalProcess({ ...init, signal: SIGTERM }, neverAborted)
    made.runtime.end(1001, { code: 0 })
    made.os.system.processes.add(1001)
    await signalled
    expect(sent(made)).toEqual([])
  })

  it('kills a first process that awaits its start', async () => {
    const { handlers } = await machineWithSandbox()
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    await handlers.signalProcess({ ...init, signal: SIGTERM }, neverAborted)
    expect((await handlers.waitProcess(init, neverAborted)).status).toBe(137)
    await expect(handlers.startContainer({ containerId: 'c1' }, neverAborted)).rejects.toThrow('is stopped')
  })

  it('kills a first process that is started and has not executed its program yet', async () => {
    const { os, handlers } = await machineWithSandbox()
    await os.files.makeDirectories('/proc/1001')
    await os.files.symlink('/memfd:runtime', '/proc/1001/exe')
    await os.files.put('/proc/1001/status', 'SigBlk:\t0\nSigIgn:\t0\nSigCgt:\t4000\n')
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    await handlers.startContainer({ containerId: 'c1' }, neverAborted)
    await handlers.signalProcess({ ...init, signal: SIGTERM }, neverAborted)
    expect((await handlers.waitProcess(init, neverAborted)).status).toBe(137)
  })

  it('does not wait for a start that hangs', async () => {
    const { handlers, runtime } = await machineWithSandbox()
    await handlers.createContainer(containerRequest('c1'), neverAborted)
    const hanging = Promise.withResolvers<object>()
    runtime.refuse = () => hanging.promise
    const started = handlers.startContainer({ containerId: 'c1' }, neverAborted)
    await handlers.signalProcess({ ...init, signal: SIGKILL }, neverAborted)
    expect((await handlers.waitProcess(init, neverAborted)).status).toBe(137)
    hanging.resolve({ exitCode: 1, stderr: 'the container is gone' })
    await expect(started).rejects.toThrow('gone')
  })

  it('succeeds on a process that has ended, whether or not its exit is reported', async () => {
    const made = await withThreeProcesses()
    made.os.system.processes.delete(1002)
    await made.handlers.signalProcess({ ...exec, signal: SIGTERM }, neverAborted)
    made.runtime.end(1003, { code: 0 })
    await made.handlers.waitProcess({ ...exec, execId: 'e2' }, neverAborted)
    await made.handlers.signalProcess({ ...exec, execId: 'e2', signal: SIGTERM }, neverAborted)
    expect(sent(made)).toEqual([])
  })

  it.each([
    ['an unknown exec id', { ...exec, execId: 'e9', signal: 15 }, 'NOT_FOUND', 'invalid exec id'],
    [
      'an unknown container',
      { ...init, containerId: 'c9', signal: 15 },
      'INVALID_ARGUMENT',
      'Invalid container id',
    ],
    [
      'an unknown container, for all processes',
      { ...init, containerId: 'c9', signal: 9 },
      'INTERNAL',
      'Invalid container id',
    ],
    ['a signal above 64', { ...init, signal: 65 }, 'INVALID_ARGUMENT', 'signal: unknown number 65'],
  ])('refuses %s', async (_what, request, code, message) => {
    const { handlers } = await machineWithContainer()
    await expect(handlers.signalProcess(request, neverAborted)).rejects.toMatchObject({
      code,
      message: expect.stringContaining(message),
    })
  })
})

const TERM = '0000000000004000'
const NONE = '0000000000000000'

const status = (masks: { SigBlk?: string; SigIgn?: string; SigCgt?: string }) =>
  `Name:\tsh\nShdPnd:\t${TERM}\nSigBlk:\t${masks.SigBlk ?? NONE}\nSigIgn:\t${masks.SigIgn ?? NONE}\nSigCgt:\t${masks.SigCgt ?? NONE}\nCapInh:\t0\n`

describe('handlesSignal', () => {
  it.each([
    ['signal 0 of a living process', status({}), 0, true],
    ['a number above the last signal', status({ SigCgt: 'ffffffffffffffff' }), 65, false],
    ['the last signal', status({ SigCgt: '8000000000000000' }), 64, true],
    ['an unreadable status', undefined, SIGTERM, false],
    ['signal 0 with an unreadable status', undefined, 0, false],
    ['a blocked signal', status({ SigBlk: TERM }), SIGTERM, true],
    ['an ignored signal', status({ SigIgn: TERM }), SIGTERM, true],
    ['a caught signal', status({ SigCgt: TERM }), SIGTERM, true],
    ['a signal in none of the masks', status({}), SIGTERM, false],
    ['the neighbouring signals only', status({ SigCgt: '000000000000a000' }), SIGTERM, false],
    ['a mask that is not hexadecimal', status({ SigCgt: 'xyz' }), SIGTERM, false],
    ['a mask with spaces around it', `SigCgt:  \t ${TERM} \n`, SIGTERM, true],
    ['an empty status', '', SIGTERM, false],
  ])('judges %s', (_what, text, signal, expected) => {
    expect(handlesSignal(text, signal)).toBe(expected)
  })
})
