import type { Registry } from '../../../../src/host/instance/registry/registry.ts'

/** The moment of a death: before or after the commit of this number, counted from 1. */
export interface Death {
  readonly commit: number
  readonly when: 'before' | 'after'
}

/** A registry whose process dies at a commit: `die` ends it, and no later commit is answered. */
export function mortalRegistry(registry: Registry, death: Death, die: () => void): Registry {
  let commits = 0
  return {
    load: (table) => registry.load(table),
    close: () => registry.close(),
    commit: async (changes) => {
      commits += 1
      if (commits > death.commit) return await new Promise(() => {})
      if (commits < death.commit) return await registry.commit(changes)
      if (death.when === 'after') await registry.commit(changes)
      die()
      return await new Promise(() => {})
    },
  }
}
