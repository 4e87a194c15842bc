import { describe, expect, it } from 'vitest'
import type { LogFields } from '../../../src/base/log.ts'
import { silentLogger } from '../../../src/base/log.ts'
import { NetworkRecord } from '../../../src/handlers/network/network-record.ts'

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
})
