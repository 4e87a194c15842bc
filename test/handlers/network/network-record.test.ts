import { describe, expect, it } from 'vitest'
import type { LogFields } from '../../../src/base/log.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { NetworkRecord } from '../../../src/handlers/network/network-record.ts'
import { StateStore } from '../../../src/state/state-store.ts'
import { MemoryStateFiles } from '../../support/fakes/files/memory-state-files.ts'

describe('NetworkRecord', () => {
  it('keeps the last source of each setting, in the order of the changes', () => {
    const record = new NetworkRecord(silentLogger())
    record.note('metadata', [
      { kind: 'route', subject: '0.0.0.0/0', value: 'via 10.0.0.1 dev eth0' },
      { kind: 'hostname', subject: '', value: 'guest' },
    ])
    record.note('rpc', [{ kind: 'route', subject: '0.0.0.0/0', value: 'via 10.0.0.9 dev eth0' }])
    expect(record.settings()).toEqual([
      { kind: 'hostname', subject: '', value: 'guest', source: 'metadata' },
      { kind: 'route', subject: '0.0.0.0/0', value: 'via 10.0.0.9 dev eth0', source: 'rpc' },
    ])
  })

  it('logs one line of limited length for each operation, and none for an empty one', () => {
    const lines: LogFields[] = []
    const record = new NetworkRecord({
      ...silentLogger(),
      info: (_message, fields = {}) => lines.push(fields),
    })
    const routes = Array.from({ length: 500 }, (_, number) => `10.0.${number}.0/24`)
    record.note(
      'rpc',
      routes.map((subject) => ({ kind: 'route', subject, value: 'dev eth0' })),
    )
    record.note('rpc', [])
    expect(lines).toHaveLength(1)
    expect(lines[0]).toMatchObject({ source: 'rpc', count: 500 })
    expect(String(lines[0]?.settings)).toHaveLength('route 10.0.0.0/24: dev eth0; '.length * 8 - 2)
  })

  const one = { kind: 'interface', subject: 'eth0', value: 'up' } as const

  it('continues in the next agent', () => {
    const state = new StateStore(new MemoryStateFiles())
    new NetworkRecord(silentLogger(), undefined, state).note('metadata', [one])
    const next = new NetworkRecord(silentLogger(), undefined, state)
    expect(next.settings()).toEqual([{ ...one, source: 'metadata' }])
    expect(next.isWhole).toBe(true)
  })

  it('keeps the newest settings, and reports that others are missing', () => {
    const state = new StateStore(new MemoryStateFiles())
    const subjects = Array.from({ length: 1100 }, (_, number) => `10.0.${number}.0/24`)
    new NetworkRecord(silentLogger(), undefined, state).note(
      'rpc',
      subjects.map((subject) => ({ ...one, subject })),
    )
    const next = new NetworkRecord(silentLogger(), undefined, state)
    expect(next.settings().map(({ subject }) => subject)).toEqual(subjects.slice(-1024))
    expect(next.isWhole).toBe(false)
  })

  it('begins empty and incomplete when the saved record cannot be read', () => {
    const files = new MemoryStateFiles()
    files.write('network', new Uint8Array([1]))
    const record = new NetworkRecord(silentLogger(), undefined, new StateStore(files))
    expect(record.settings()).toEqual([])
    expect(record.isWhole).toBe(false)
  })

  it('works without room for its state', () => {
    const files = new MemoryStateFiles()
    files.write = () => {
      throw new Error('ENOSPC')
    }
    const record = new NetworkRecord(silentLogger(), undefined, new StateStore(files))
    record.note('rpc', [one])
    expect(record.settings()).toEqual([{ ...one, source: 'rpc' }])
  })
})
