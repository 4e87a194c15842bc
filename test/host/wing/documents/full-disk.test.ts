import { execFileSync } from 'node:child_process'
import { mkdtempSync, readdirSync, rmdirSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { EnsureInstanceRequest, State } from '../../../../src/gen/microvm/instance/v1/instance.ts'
import { memoryRegistry } from '../../../../src/host/instance/registry/memory-registry.ts'
import { openReal } from '../../../support/wing/real-wing.ts'
import { ADMIN } from '../../../support/wing/requests.ts'

const KIB = 1024

it.each([
  ['metadata0-backend.pb', 'metadata: { name: web }', 0],
  ['specification.binpb', 'rng: true', 0],
  ['uefi-variables.fd', 'firmware: uefi', 64 * KIB],
])(
  'a full state folder without room for %s refuses the instance and leaves nothing',
  async (name, feature, room) => {
    // Not among the temporary folders: those of dead runs are swept, which a mount would prevent.
    const small = mkdtempSync('/run/full-')
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=8m,mode=755', 'tmpfs', small])
    const instances = await openReal(join(small, 's'), memoryRegistry())
    try {
      const document = `{ kind: VM, spec: { features: { memory: 64, ${feature} } } }`
      const request = EnsureInstanceRequest.fromPartial({ properties: { key: 'web' }, document })
      const { bavail, bsize } = statfsSync(small)
      const filler = join(small, 'filler')
      writeFileSync(filler, Buffer.alloc(bavail * bsize - room, 1))
      await expect(instances.ensure(request, ADMIN)).rejects.toMatchObject({
        code: 'RESOURCE_EXHAUSTED',
        message: expect.stringMatching(new RegExp(`^${small}/.*/${name}: ENOSPC$`)),
      })
      expect(instances.list(ADMIN)).toEqual([])
      expect(readdirSync(join(small, 's'))).toEqual(['instances'])
      expect(readdirSync(join(small, 's', 'instances'))).toEqual([])
      rmSync(filler)
      expect((await instances.ensure(request, ADMIN)).state).toBe(State.PAUSED)
    } finally {
      await instances.remove('web', ADMIN).catch(() => {})
      await instances.close()
      execFileSync('umount', ['-l', small])
      rmdirSync(small)
    }
  },
)
