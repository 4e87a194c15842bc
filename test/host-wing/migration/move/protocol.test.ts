import { describe, expect, it } from 'vitest'
import { MigrationTarget } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { MigrationProtocol } from '../../../../src/gen/vm.ts'
import { agreedOn, choose, offers } from '../../../../src/host/migration/move/protocol.ts'
import { file } from '../../../support/wing/requests.ts'

const offered = offers(['root', 'data'].map((key) => ({ key, path: `/a/${key}`, sizeBytes: 512n })))
const [plain, withDisks] = offered.map(({ qmeuBlock }) => qmeuBlock)

function targetWith(replaced: Readonly<Record<string, string>>): MigrationTarget {
  const entries = Object.entries(replaced).map(([key, path]) => [key, file(path)] as const)
  return MigrationTarget.fromPartial({ replaceComponents: Object.fromEntries(entries) })
}

describe('what a target chooses', () => {
  it('is memory alone without a disk of its own, and disks with one', () => {
    expect(withDisks?.constraintNbd.map(({ key }) => key)).toEqual(['root', 'data'])
    expect(choose(offered, undefined)).toEqual({ protocol: plain, disks: [] })
    expect(choose(offered, targetWith({ root: '/b/root', data: '/a/data' }))).toMatchObject({
      ...{ protocol: withDisks, disks: [{ key: 'root', sizeBytes: 512 }] },
    })
  })

  it('is nothing where a disk of its own is not offered', () => {
    const all = [offered.slice(0, 1), offered.slice(1).map((each) => without(each, 'root'))]
    for (const some of all)
      expect(() => choose(some, targetWith({ root: '/b/root' }))).toThrow('constraint_nbd of root')
    expect(() => choose([], undefined)).toThrow('none that this host speaks')
  })
})

describe('what a source takes', () => {
  const answer = (change: object = {}) =>
    MigrationProtocol.fromPartial({
      qmeuBlock: {
        ...withDisks,
        ...{ negotiatedNbdEndpoint: 'b:1', negotiatedExport: [{ key: 'root', name: 'root' }] },
        ...change,
      },
    })

  it('are the exports of a target that has understood all', () => {
    expect(agreedOn('b', { offered, answer: answer() })).toMatchObject({
      disksEndpoint: 'b:1',
      disks: [{ key: 'root', path: '/a/root', sizeBytes: 512 }],
    })
    const memory = MigrationProtocol.fromPartial({ qmeuBlock: plain ?? {} })
    expect(agreedOn('b', { offered, answer: memory }).disks).toEqual([])
    const told = answer({ negotiatedNbdEndpoint: '' })
    expect(agreedOn('b', { offered, answer: told, dryRun: true }).disks).toHaveLength(1)
  })

  it.each([
    [{ constraintNbd: [] }, 'has dropped the constraint nbd'],
    [{ constraintWithBlockmigration: false }, 'has dropped the constraint nbd'],
    [{ constraintTls: false }, 'has dropped the constraint tls'],
    [{ constraintHandover: 0 }, 'does not speak version 2 of the handover'],
    [{ negotiatedNbdEndpoint: '' }, 'has told no endpoint for disks'],
    [{ negotiatedExport: [{ key: 'iso', name: 'iso' }] }, 'no disk iso is to be copied as iso'],
    [{ negotiatedExport: [{ key: 'root', name: 'data' }] }, 'no disk root is to be copied as data'],
  ])('are none of %j', (change, text) => {
    expect(() => agreedOn('b', { offered, answer: answer(change) })).toThrow(`host b: ${text}`)
  })
})

function without({ qmeuBlock }: MigrationProtocol, key: string): MigrationProtocol {
  const constraintNbd = (qmeuBlock?.constraintNbd ?? []).filter((each) => each.key !== key)
  return MigrationProtocol.fromPartial({ qmeuBlock: { ...qmeuBlock, constraintNbd } })
}
