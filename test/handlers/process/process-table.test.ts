import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { ContainerProcess } from '../../../src/handlers/process/process.ts'
import { ProcessTable } from '../../../src/handlers/process/process-table.ts'
import { PortConnections } from '../../../src/handlers/stdio/port-connections.ts'
import { openPipes } from '../../../src/handlers/stdio/stdio.ts'
import { StoredDescriptors } from '../../../src/handlers/stdio/stored-descriptors.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'

function processOf(pid: number): ContainerProcess {
  const os = new FakeOs()
  const { stdio } = openPipes(
    os,
    0,
    new PortConnections(os.streams),
    new StoredDescriptors(os.descriptors, 'p1'),
  )
  return new ContainerProcess({
    key: 'p1',
    pid,
    stdio,
    exit: os.exits.watch().exitOf(pid),
    exits: os.exits,
    log: silentLogger(),
  })
}

function table() {
  const init = processOf(1)
  return { init, processes: new ProcessTable({ id: 'c1' }, init) }
}

describe('ProcessTable', () => {
  it('returns the first process for the empty id and the container id', () => {
    const { init, processes } = table()
    expect(processes.get('')).toBe(init)
    expect(processes.get('c1')).toBe(init)
  })

  it('returns a published process by its exec id, which may be any text', () => {
    const { processes } = table()
    const added = processOf(2)
    processes.reserve('../e 1').publish(added)
    expect(processes.get('../e 1')).toBe(added)
  })

  it.each(['', 'c1', 'e1'])('refuses to reserve %j twice', (execId) => {
    const { processes } = table()
    processes.reserve('e1')
    expect(() => processes.reserve(execId)).toThrow(
      expect.objectContaining({ code: 'INTERNAL', message: `exec_id '${execId}' already exists` }),
    )
  })

  it('waits for a process that is starting', async () => {
    const { processes } = table()
    const reservation = processes.reserve('e1')
    expect(() => processes.get('e1')).toThrow('Process not found: invalid exec id')
    const waited = processes.waitFor('e1', { signal: neverAborted })
    const added = processOf(2)
    reservation.publish(added)
    expect(await waited).toBe(added)
  })

  it('frees the exec id of a failed start', async () => {
    const { processes } = table()
    const reservation = processes.reserve('e1')
    const waited = processes.waitFor('e1', { signal: neverAborted })
    reservation.abandon()
    await expect(waited).rejects.toMatchObject({ code: 'NOT_FOUND' })
    processes.reserve('e1')
  })

  it('distinguishes a forgotten first process from an unknown exec id', () => {
    const { init, processes } = table()
    processes.forget(init)
    expect(() => processes.get('')).toThrow('Process not found: init process missing')
    expect(() => processes.get('e9')).toThrow('Process not found: invalid exec id')
  })

  it('forgets a process only while the exec id still names it', () => {
    const { processes } = table()
    const [first, second] = [processOf(2), processOf(3)]
    processes.reserve('e1').publish(first)
    processes.forget(first)
    processes.reserve('e1').publish(second)
    processes.forget(first)
    expect(processes.get('e1')).toBe(second)
  })
})
