import { describe, expect, it } from 'vitest'
import { readCatalogue } from '../../../src/host/catalogue/catalogue.ts'
import { chooseCpus, commonCpus, memoryNodes } from '../../../src/host/catalogue/choose-cpus.ts'
import { expanded } from '../../support/host-wing/expansion.ts'

const CATALOGUE = readCatalogue({
  cpu_pools: {
    fast: { cpus: '4-7', tenants: ['anne'] },
    slow: { cpus: '1-3,8-9', tenants: ['anne', 'bob'] },
    own: { cpus: '20' },
  },
})
/** CPU 9 is offline, and 0 to 2 are not of the node of the others. */
const HOST = {
  online: new Set([0, 1, 2, 3, 4, 5, 6, 7, 8]),
  nodes: new Map([
    [0, [0, 1, 2]],
    [1, [3, 4, 5, 6, 7, 8]],
  ]),
}

interface Wish {
  readonly cpu: Readonly<Record<string, unknown>>
  readonly numa?: unknown
  readonly tenant?: string
  readonly taken?: readonly number[]
}

const machineOf = ({ cpu, numa }: Wish) =>
  expanded(numa === undefined ? { cpu } : { cpu, numa }, { facts: { numaNodes: [...HOST.nodes.values()] } })

const chosen = ({ tenant = 'anne', taken = [], ...wish }: Wish) =>
  chooseCpus({ machine: machineOf(wish), tenant, catalogue: CATALOGUE, host: HOST, taken: new Set(taken) })

describe('exclusive CPUs', () => {
  it('are none without a wish, and of the first pool that has enough', () => {
    expect(chosen({ cpu: { count: 2 } })).toEqual([])
    expect(chosen({ cpu: { count: 2, exclusive: true } })).toEqual([4, 5])
    expect(chosen({ cpu: { count: 2, exclusive: true }, taken: [4, 5, 6] })).toEqual([1, 2])
    expect(chosen({ cpu: { count: 2, exclusive: true }, tenant: 'bob' })).toEqual([1, 2])
  })

  it('are of one node where one has enough', () => {
    expect(chosen({ cpu: { count: 2, exclusive: 'slow' }, taken: [1] })).toEqual([3, 8])
    expect(chosen({ cpu: { count: 4, exclusive: 'slow' } })).toEqual([1, 2, 3, 8])
  })

  it('are of the node of each cell where the machine matches the host', () => {
    const wish = { cpu: { count: 4, exclusive: 'slow' }, numa: 'match-host' }
    expect(chosen(wish)).toEqual([1, 2, 3, 8])
    expect(memoryNodes(machineOf(wish), chosen(wish), HOST)).toEqual([0, 1])
  })

  it.each([
    [
      { cpu: { exclusive: 'slw' } },
      'FAILED_PRECONDITION',
      'CPU pool "slw": not in the catalogue for tenant anne, did you mean "slow"?',
    ],
    [
      { cpu: { exclusive: 'fast' }, tenant: 'bob' },
      'FAILED_PRECONDITION',
      'CPU pool "fast": not in the catalogue for tenant bob, want slow',
    ],
    [
      { cpu: { exclusive: true }, tenant: 'eve' },
      'FAILED_PRECONDITION',
      'a CPU pool: not in the catalogue for tenant eve',
    ],
    [
      { cpu: { count: 5, exclusive: true }, taken: [6] },
      'RESOURCE_EXHAUSTED',
      'wants 5 CPUs, but CPU pool fast has 3 free, slow has 4 free',
    ],
    [
      { cpu: { exclusive: 'own' }, tenant: '' },
      'RESOURCE_EXHAUSTED',
      'wants 1 CPUs, but CPU pool own has 0 free',
    ],
  ])('are refused: %j', (wish, code, text) => {
    expect(() => chosen(wish)).toThrow(expect.objectContaining({ code, message: `cpu.exclusive: ${text}` }))
  })

  it('leave others the CPUs of no pool', () => {
    expect(commonCpus(CATALOGUE, HOST)).toEqual([0])
    expect(commonCpus(readCatalogue({}), HOST)).toBeUndefined()
    const all = readCatalogue({ cpu_pools: { all: { cpus: '0-8' } } })
    expect(() => commonCpus(all, HOST)).toThrow('cpu_pools: all CPUs of this host are in pools')
  })
})

describe('the node of memory', () => {
  it('is that of the exclusive CPUs, and none when they are of several', () => {
    const machine = machineOf({ cpu: { count: 2 } })
    expect(memoryNodes(machine, [4, 5], HOST)).toEqual([1])
    expect(memoryNodes(machine, [2, 3], HOST)).toEqual([undefined])
    expect(memoryNodes(machine, [], HOST)).toEqual([undefined])
  })

  it('is that of its number for a cell of a machine that matches the host', () => {
    expect(memoryNodes(machineOf({ cpu: { count: 2 }, numa: 'match-host' }), [], HOST)).toEqual([0, 1])
  })
})
