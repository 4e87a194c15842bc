import { describe, expect, it } from 'vitest'
import { LinuxResources } from '../../src/gen/oci.ts'
import { mergeResources } from '../../src/oci/resources.ts'

const resources = LinuxResources.fromPartial

describe('mergeResources', () => {
  it('changes what the update names and keeps the rest', () => {
    const stored = resources({
      Memory: { Limit: 100n, Swap: 200n },
      CPU: { Shares: 10n },
      Pids: { Limit: 5n },
    })
    const update = resources({ Memory: { Limit: 150n }, CPU: { Quota: -1n, Cpus: '0-1' } })
    expect(mergeResources(stored, update)).toEqual(
      resources({
        Memory: { Limit: 150n, Swap: 200n },
        CPU: { Shares: 10n, Quota: -1n, Cpus: '0-1' },
        Pids: { Limit: 5n },
      }),
    )
  })

  it('replaces lists whole, unless they are empty', () => {
    const pages = (limit: bigint) => ({ HugepageLimits: [{ Pagesize: '2MB', Limit: limit }] })
    expect(mergeResources(resources(pages(1n)), resources(pages(2n)))).toEqual(resources(pages(2n)))
    expect(mergeResources(resources(pages(1n)), resources({}))).toEqual(resources(pages(1n)))
  })

  it('uses the update when nothing was stored', () => {
    const update = resources({ Pids: { Limit: 7n } })
    expect(mergeResources(undefined, update)).toEqual(update)
  })
})
