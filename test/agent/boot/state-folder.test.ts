import { describe, expect, it } from 'vitest'
import { mountStateFolder, STATE_FOLDER } from '../../../src/agent/boot/state-folder.ts'
import { bareGuest } from '../../support/agent/bare-guest.ts'

describe('mountStateFolder', () => {
  it('mounts a file system of a fixed size, for the agent alone', async () => {
    const { os, context } = await bareGuest()
    expect(await mountStateFolder(context)).toBe('done')
    expect(os.mounts.requests.map(({ target, flags, data }) => ({ target, flags, data }))).toEqual([
      {
        target: STATE_FOLDER,
        flags: ['nosuid', 'nodev', 'noexec'],
        data: 'mode=700,size=96m,nr_inodes=65536',
      },
    ])
  })

  it('keeps the file system of the previous agent', async () => {
    const { context } = await bareGuest()
    await mountStateFolder(context)
    expect(await mountStateFolder(context)).toBe('already')
  })
})
