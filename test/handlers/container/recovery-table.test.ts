import { describe, expect, it } from 'vitest'
import {
  CONTAINER_ROWS,
  PROCESS_ROWS,
  type RecoveryRow,
  recoveryTable,
  SANDBOX_ROWS,
} from '../../../scripts/reference/recovery.ts'
import { neverAborted } from '../../../src/base/abort.ts'
import { Phase } from '../../../src/handlers/container/container-record.ts'
import { chosen, type Question, RECOVERY } from '../../../src/handlers/container/recovery-table.ts'
import { Phase as SandboxPhase } from '../../../src/handlers/sandbox/sandbox-record.ts'
import { EMPTY_RESPONSE } from '../../../src/state/request-journal.ts'
import { numbered } from '../../support/handlers/call.ts'
import {
  containerRequest,
  execRequest,
  type Machine,
  machineWithContainer,
  machineWithSandbox,
} from '../../support/handlers/machine.ts'
import {
  forgetPids,
  isAnswered,
  OPEN,
  recordContainer,
  recordSandbox,
  successorOf,
} from '../../support/handlers/successor.ts'

const GONE = 6n

/** The container's state after each row, and whether the repeated call of its phase is answered from its outcome. */
const CONTAINERS: Readonly<Record<string, readonly [state: string, isAnswered: boolean]>> = {
  'CREATING, sent again, made': ['created', true],
  'CREATING, sent again, not made': ['none', false],
  'CREATING, not sent again': ['none', false],
  CREATED: ['created', true],
  'STARTING, started': ['running', true],
  'STARTING, not started': ['created', false],
  RUNNING: ['running', true],
  PAUSED: ['paused', true],
  'REMOVING, sent again, answered': ['none', true],
  'REMOVING, sent again, not answered': ['running', false],
  'REMOVING, not sent again': ['none', false],
  'PAUSING, frozen': ['paused', true],
  'PAUSING, not frozen': ['running', false],
  'RESUMING, frozen': ['paused', false],
  'RESUMING, not frozen': ['running', true],
}

const PROCESSES: typeof CONTAINERS = {
  'adding, sent again, made': ['running', true],
  'adding, sent again, not made': ['none', false],
  'adding, not sent again': ['none', false],
  added: ['running', true],
}

const SANDBOXES: typeof CONTAINERS = {
  CREATING: ['none', false],
  ACTIVE: ['active', true],
  DESTROYING: ['active', false],
  DESTROYED: ['destroyed', true],
  LOST: ['lost', false],
}

function named(rows: readonly RecoveryRow<string>[]) {
  return rows.map((row) => {
    const facts: Partial<Record<Question, boolean>> = Object.fromEntries(row.facts)
    const words = row.facts.map(([question, isSo]) => `${isSo ? '' : 'not '}${question}`)
    return { name: [row.phase, ...words].join(', '), phase: row.phase, facts }
  })
}

const requestOf = (facts: Partial<Record<Question, boolean>>) => (facts['sent again'] === false ? GONE : OPEN)

const PHASES: Readonly<Record<string, Phase>> = Phase
const SANDBOX_PHASES: Readonly<Record<string, SandboxPhase>> = SandboxPhase

async function withContainerIn(phase: string, facts: Partial<Record<Question, boolean>>): Promise<Machine> {
  const isNew = phase === 'CREATING' || phase === 'CREATED' || facts.started === false
  const before = await (isNew ? machineWithSandbox() : machineWithContainer())
  if (isNew) await before.handlers.createContainer(containerRequest('c1'), neverAborted)
  const request = requestOf(facts)
  recordContainer(before, { phase: PHASES[phase] ?? 0, request })
  if (facts.made === false) recordContainer(before, { init: undefined })
  if (facts.answered === true) before.context.requests.answer(numbered(request), EMPTY_RESPONSE)
  const isFrozen = facts.frozen === true || phase === 'PAUSED'
  const freezer = isFrozen ? 'FROZEN\n' : phase === 'PAUSING' ? 'FREEZING\n' : 'THAWED\n'
  await before.os.files.put('/sys/fs/cgroup/freezer/containers/c1/freezer.state', freezer)
  return before
}

function callAgain({ handlers }: Machine, phase: string): Promise<unknown> {
  const container = { containerId: 'c1' }
  if (phase === 'STARTING') return handlers.startContainer(container, neverAborted, OPEN)
  if (phase === 'PAUSING') return handlers.pauseContainer(container, neverAborted, OPEN)
  if (phase === 'RESUMING') return handlers.resumeContainer(container, neverAborted, OPEN)
  if (phase === 'REMOVING') return handlers.removeContainer({ ...container, timeout: 0 }, neverAborted, OPEN)
  return handlers.createContainer(containerRequest('c1'), neverAborted, OPEN)
}

describe('the recovery table', () => {
  it('has no row that is not tested', () => {
    const names = [CONTAINER_ROWS, PROCESS_ROWS, SANDBOX_ROWS].flatMap((rows) => named(rows))
    const tested = [CONTAINERS, PROCESSES, SANDBOXES].flatMap((rows) => Object.keys(rows))
    expect(names.map(({ name }) => name).sort()).toEqual(tested.sort())
  })

  it('has words for each action', () => {
    expect(recoveryTable()).not.toContain('undefined')
  })

  it('refuses a phase that no agent writes', async () => {
    await expect(chosen(RECOVERY.container, 0, () => true)).rejects.toThrow('phase 0: unknown')
  })

  it.each(named(CONTAINER_ROWS))('holds of a container: $name', async ({ name, phase, facts }) => {
    const [state, isDone] = CONTAINERS[name] ?? []
    const before = await withContainerIn(phase, facts)
    const after = await successorOf(before)
    const stateOf = () => after.context.containers.tryGet('c1')?.state.name ?? 'none'
    // What is answered has happened.
    if (isDone) expect(stateOf()).toBe(state)
    else await expect.poll(stateOf).toBe(state)
    expect(isAnswered(after)).toBe(isDone)
    expect(after.runtime.processes).toHaveLength(state === 'none' ? 0 : 1)
    if (!isDone && facts['sent again'] !== false) await callAgain(after, phase)
  })

  it.each(named(PROCESS_ROWS))('holds of an added process: $name', async ({ name, phase, facts }) => {
    const [state, isDone] = PROCESSES[name] ?? []
    const before = await machineWithContainer()
    await before.handlers.execProcess(execRequest('c1', 'e1'), neverAborted, requestOf(facts))
    const { pid } = before.runtime.last()
    if (phase === 'adding') forgetPids(before)
    if (facts.made !== false) {
      await before.os.files.put('/run/microvm-agent/runtime/calls/p2/pid', `${pid}`)
    } else before.runtime.end(pid, { code: 1 })
    const after = await successorOf(before)
    expect(after.runtime.processes).toHaveLength(state === 'none' ? 1 : 2)
    expect(isAnswered(after)).toBe(isDone)
    const wait = after.handlers.waitProcess({ containerId: 'c1', execId: 'e1' }, neverAborted)
    after.runtime.end(pid, { code: 4 })
    if (state === 'none') await expect(wait).rejects.toMatchObject({ code: 'NOT_FOUND' })
    else expect((await wait).status).toBe(4)
  })

  it.each(named(SANDBOX_ROWS))('holds of the sandbox: $name', async ({ name, phase }) => {
    const [state, isDone] = SANDBOXES[name] ?? []
    const before = await machineWithSandbox()
    recordSandbox(before, { phase: SANDBOX_PHASES[phase] ?? 0, request: OPEN })
    const after = await successorOf(before)
    expect(after.context.sandboxState.view.name).toBe(state)
    expect(isAnswered(after)).toBe(isDone)
  })
})
