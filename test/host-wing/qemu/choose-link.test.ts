import { describe, expect, it } from 'vitest'
import { vsockCandidates } from '../../../src/host/qemu/vsock/choose-link.ts'

describe('vsockCandidates', () => {
  it('prefers the kernel, then the daemon, then TCP', () => {
    expect(vsockCandidates({ override: undefined, vhostUsable: true })).toEqual([
      'vhost',
      'vhost-user',
      'tcp',
    ])
  })

  it('omits the kernel when it has no vhost-vsock', () => {
    expect(vsockCandidates({ override: '', vhostUsable: false })).toEqual(['vhost-user', 'tcp'])
  })

  it('tries only the override', () => {
    expect(vsockCandidates({ override: 'tcp', vhostUsable: true })).toEqual(['tcp'])
  })

  it('refuses an unknown override', () => {
    expect(() => vsockCandidates({ override: 'udp', vhostUsable: true })).toThrow('MICROVM_VSOCK=udp: choose')
  })
})
