import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import type { Os } from '../../../src/os/os.ts'
import { type Machine, machine } from '../../support/handlers/machine.ts'

const SHARED = '/run/kata-containers/shared/containers'

async function mounted(...targets: readonly string[]): Promise<Machine & { readonly seen: string[] }> {
  const seen: string[] = []
  const wrap = (os: Os): Os => ({
    ...os,
    files: new Proxy(os.files, {
      get: (files, key) =>
        key === 'stat'
          ? (path: string) => {
              seen.push(path)
              return Promise.reject(new Error('stale'))
            }
          : Reflect.get(files, key),
    }),
  })
  const made = await machine({ wrap })
  for (const target of targets)
    await made.os.mounts.mount({ source: 'share', target, type: 'virtiofs', flags: [], data: '' })
  return { ...made, seen }
}

describe('RemoveStaleVirtiofsShareMounts', () => {
  it('stats every mount in the shared folders, and ignores failures', async () => {
    const { handlers, seen } = await mounted(
      SHARED,
      `${SHARED}/a`,
      `${SHARED}/a/b`,
      '/run/kata-containers/c1/rootfs',
    )
    await handlers.removeStaleShareMounts({}, neverAborted)
    expect(seen).toEqual([`${SHARED}/a`, `${SHARED}/a/b`])
  })

  it('stats the mounts of a rootless host too', async () => {
    const { handlers, seen } = await mounted(`/run/user/1000${SHARED}/a`, `/run/user/name${SHARED}/a`)
    await handlers.removeStaleShareMounts({}, neverAborted)
    expect(seen).toEqual([`/run/user/1000${SHARED}/a`])
  })

  it('succeeds when nothing is mounted', async () => {
    const { handlers, seen } = await mounted()
    await handlers.removeStaleShareMounts({}, neverAborted)
    expect(seen).toEqual([])
  })
})
