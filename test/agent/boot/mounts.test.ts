import { describe, expect, it } from 'vitest'
import { mountGuestFileSystems } from '../../../src/agent/boot/mounts.ts'
import { bareGuest } from '../../support/agent/bare-guest.ts'

describe('mountGuestFileSystems', () => {
  it('mounts the file systems that vminit does not mount', async () => {
    const { os, context } = await bareGuest()
    await mountGuestFileSystems(context)
    expect(os.mounts.requests).toEqual([
      { source: 'tmpfs', target: '/dev/shm', type: 'tmpfs', flags: ['nosuid', 'nodev'], data: 'mode=1777' },
      {
        source: 'devpts',
        target: '/dev/pts',
        type: 'devpts',
        flags: ['nosuid', 'noexec'],
        data: 'gid=5,mode=620,ptmxmode=666',
      },
      { source: 'tmpfs', target: '/run', type: 'tmpfs', flags: ['nosuid', 'nodev'], data: 'mode=755' },
      { source: 'tmpfs', target: '/tmp', type: 'tmpfs', flags: ['nosuid', 'nodev'], data: 'mode=1777' },
    ])
  })

  it('keeps existing mounts', async () => {
    const { os, context } = await bareGuest()
    await os.mounts.mount({ source: 'run', target: '/run', type: 'tmpfs', flags: [], data: '' })
    await mountGuestFileSystems(context)
    expect(os.mounts.entries.filter(({ mountPoint }) => mountPoint === '/run')).toHaveLength(1)
  })

  it('mounts over another type of file system', async () => {
    const { os, context } = await bareGuest()
    await os.mounts.mount({ source: '/dev/vdb', target: '/run', type: 'ext4', flags: [], data: '' })
    await mountGuestFileSystems(context)
    expect(os.mounts.entries.findLast(({ mountPoint }) => mountPoint === '/run')?.type).toBe('tmpfs')
  })

  it.each(['/proc', '/sys', '/dev'])('fails when vminit has not mounted %s', async (target) => {
    const { os, context } = await bareGuest()
    await os.mounts.unmount(target)
    await expect(mountGuestFileSystems(context)).rejects.toThrow(`mount ${target}: no `)
  })
})
