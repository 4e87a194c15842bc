import { refuse } from '../../../spec/component-path.ts'
import { MAX_MEMORY_MIB } from '../../../spec/limits.ts'
import { boolean, either, integer, list, object, oneOf, optional } from '../../document/shape.ts'
import { cpuNumbers } from '../../document/words.ts'
import type { NumaCell } from '../../machine.ts'
import type { Draft } from '../draft.ts'
import { feature } from '../feature.ts'

const MAX_CELLS = 128

const cell = object({ cpus: cpuNumbers, memory: integer(1, MAX_MEMORY_MIB, 'MiB') })

export const numa = feature({
  name: 'numa',
  summary: '`match-host`, or cells with their CPUs and MiB',
  shape: either(
    oneOf(['match-host']),
    object({ matchHost: optional(boolean), cells: optional(list(cell, MAX_CELLS)) }),
    () => ({ matchHost: true }),
  ),
  expand: (draft, wish, { at, facts }) => {
    if (wish === undefined) return draft
    if (wish.matchHost === true && wish.cells !== undefined)
      refuse(`${at}.matchHost`, 'true: the host decides the cells, want no cells')
    if (wish.cells !== undefined)
      return { ...draft, numa: { matchHost: false, cells: checked(draft, wish.cells, at) } }
    if (wish.matchHost !== true) return draft
    return {
      ...draft,
      numa: {
        matchHost: true,
        cells: facts.numaNodes === undefined ? [] : evenCells(draft, facts.numaNodes.length),
      },
    }
  },
})

/** The CPUs that no cell names belong to the first one, where QEMU puts them. */
function checked(
  { cpu, memory }: Draft,
  wishes: readonly { cpus: readonly number[]; memory: number }[],
  at: string,
): readonly NumaCell[] {
  const taken = new Set<number>()
  for (const [index, { cpus }] of wishes.entries()) {
    for (const number of cpus) {
      const field = `${at}.cells[${index}].cpus`
      if (number >= cpu.count) refuse(field, `${number}: want 0 to ${cpu.count - 1}`)
      if (taken.has(number)) refuse(field, `${number}: given twice`)
      taken.add(number)
    }
  }
  const sum = wishes.reduce((total, wish) => total + wish.memory, 0)
  if (sum !== memory.sizeMib)
    refuse(`${at}.cells`, `${sum} MiB together, want the size of the memory, ${memory.sizeMib}`)
  const rest = Array.from({ length: cpu.count }, (_, number) => number).filter((number) => !taken.has(number))
  return wishes.map(({ cpus, memory: memoryMib }, index) => ({
    cpus: [...cpus, ...(index === 0 ? rest : [])].sort((a, b) => a - b),
    memoryMib,
  }))
}

/** As many cells as the host has nodes, and never more than CPUs or MiB. */
function evenCells({ cpu, memory }: Draft, nodes: number): readonly NumaCell[] {
  const cells = Math.max(1, Math.min(nodes, cpu.count, memory.sizeMib, MAX_CELLS))
  const share = (total: number, index: number) =>
    Math.floor((total * (index + 1)) / cells) - Math.floor((total * index) / cells)
  let next = 0
  return Array.from({ length: cells }, (_, index) => {
    const cpus = Array.from({ length: share(cpu.count, index) }, () => next++)
    return { cpus, memoryMib: share(memory.sizeMib, index) }
  })
}
