import { beforeEach, describe, expect, it } from 'vitest'
import { mountExtensions } from '../../../src/agent/boot/extensions.ts'
import { bareGuest } from '../../support/agent/bare-guest.ts'

const HASH = 'ab'.repeat(32)
const VERITY = `root_hash=${HASH},salt=cd,data_blocks=16,data_block_size=4096,hash_block_size=4096`

describe('mountExtensions', () => {
  let guest: Awaited<ReturnType<typeof bareGuest>>
  beforeEach(async () => {
    guest = await bareGuest()
    guest.os.mounts.requests.length = 0
  })

  async function addDisk(name: string, serial: string, partitions: number) {
    const { files } = guest.os
    await files.put(`/sys/block/${name}/serial`, serial)
    const numbers = Array.from({ length: partitions }, (_, index) => index + 1)
    for (const node of [name, ...numbers.map((number) => `${name}${number}`)])
      await files.makeSpecial(`/dev/${node}`, { kind: 'block', major: 254, minor: 0 })
  }

  const commandLine = (text: string) => guest.os.files.put('/proc/cmdline', `quiet ${text} panic=1\n`)

  const mounted = () => guest.os.mounts.requests.map(({ source, target }) => `${source} ${target}`)

  const warnings = () => guest.lines.filter(({ level }) => level === 'warn').map(({ fields }) => fields)

  it('does nothing when the shim names none', async () => {
    await addDisk('vdb', 'extension-devkit', 1)
    expect(await mountExtensions(guest.context)).toBe('already')
    expect(mounted()).toEqual([])
  })

  it.each([
    [0, 'verity_params=', '/dev/vdb'],
    [1, 'verity_params=', '/dev/vdb1'],
    // Kata's shims write no "=" where their configuration has no parameters.
    [1, 'verity_params', '/dev/vdb1'],
  ])('mounts a disk with %i partitions and %s read-only', async (partitions, key, source) => {
    await addDisk('vda', 'root', 1)
    await addDisk('vdb', 'extension-devkit', partitions)
    await commandLine(`kata.extension.devkit.${key}`)
    expect(await mountExtensions(guest.context)).toBe('done')
    expect(guest.os.mounts.requests).toMatchObject([
      { source, target: '/run/kata-extensions/devkit', type: 'erofs', flags: ['ro'] },
    ])
  })

  it('verifies an image with hashes', async () => {
    await addDisk('vdb', 'extension-devkit', 2)
    await commandLine(`kata.extension.devkit.verity_params=${VERITY}`)
    expect(await mountExtensions(guest.context)).toBe('done')
    expect([...guest.os.blockDevices.mapped]).toMatchObject([
      [
        'extension-devkit',
        {
          type: 'verity',
          sectors: 128n,
          parameters: `1 /dev/vdb1 /dev/vdb2 4096 4096 16 0 sha256 ${HASH} cd`,
        },
      ],
    ])
    expect(mounted()).toEqual(['/dev/dm-0 /run/kata-extensions/devkit'])
  })

  it('mounts several images, and continues after a failed one', async () => {
    await addDisk('vdb', 'extension-one', 1)
    await addDisk('vdc', 'extension-two', 1)
    const names = ['one', 'absent', 'two'].map((name) => `kata.extension.${name}.verity_params=`)
    await commandLine(names.join(' '))
    expect(await mountExtensions(guest.context)).toBe('done')
    expect(mounted()).toEqual(['/dev/vdb1 /run/kata-extensions/one', '/dev/vdc1 /run/kata-extensions/two'])
    expect(warnings()).toEqual([{ name: 'absent', error: 'no disk with the serial extension-absent' }])
  })

  it('leaves alone what the previous agent mounted', async () => {
    await addDisk('vdb', 'extension-devkit', 1)
    await commandLine('kata.extension.devkit.verity_params=')
    await mountExtensions(guest.context)
    expect(await mountExtensions(guest.context)).toBe('already')
    expect(mounted()).toHaveLength(1)
  })

  it.each([
    ['hashes that nobody uses', 2, '', 'verity_params: missing, want hashes and verity_params, or neither'],
    ['no hashes', 1, VERITY, 'no second partition, want hashes and verity_params, or neither'],
    ['no root hash', 2, 'salt=cd,data_blocks=16', 'verity_params: root_hash: ""'],
    ['no number of blocks', 2, `root_hash=${HASH}`, 'verity_params: data_blocks: ""'],
    ['more than a word in a field', 2, `root_hash=${HASH};x`, `verity_params: root_hash: "${HASH};x"`],
  ])('refuses an image with %s', async (_what, partitions, fields, text) => {
    await addDisk('vdb', 'extension-devkit', partitions)
    await commandLine(`kata.extension.devkit.verity_params=${fields}`)
    expect(await mountExtensions(guest.context)).toBe('already')
    expect(mounted()).toEqual([])
    expect(warnings()).toMatchObject([{ name: 'devkit', error: expect.stringContaining(text) }])
  })

  it.each(['../etc', '.hidden', 'a/b', ''])(
    'accepts no name that leads to another folder: %j',
    async (name) => {
      await addDisk('vdb', `extension-${name}`, 1)
      await commandLine(`kata.extension.${name}.verity_params=`)
      expect(await mountExtensions(guest.context)).toBe('already')
      expect(mounted()).toEqual([])
    },
  )

  it.each(['devkit', 'devkit.verity', 'devkit.verity_params.x', 'dev/kit.verity_params', ''])(
    'warns of a word that names no extension, and mounts the others: %j',
    async (end) => {
      await addDisk('vdb', 'extension-devkit', 1)
      await commandLine(`kata.extension.${end} kata.extension.devkit.verity_params`)
      expect(await mountExtensions(guest.context)).toBe('done')
      const error = 'want kata.extension.NAME.verity_params, or that with =FIELD=VALUE,...'
      expect(warnings()).toEqual([{ word: `kata.extension.${end}`, error }])
    },
  )
})
