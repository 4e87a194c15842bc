import { truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { askedQemu } from '../../../src/host/qemu/capabilities.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** Only looks at the program. */
const NO_TYPES = [] as const

describe('a QEMU that is looked for', () => {
  it('is found after several calls at once have missed it', async () => {
    const program = join(temporaryFolder(), 'qemu')
    const qemu = askedQemu(program, 'tcg')
    const looks = [1, 2, 3].map(() => qemu.propertiesOf(NO_TYPES))
    for (const look of looks) await expect(look).rejects.toThrow('no such program')
    await writeFile(program, '')
    expect(await qemu.propertiesOf(NO_TYPES)).toEqual([])
  })

  it('is taken as another one after one that could not be read', async () => {
    const program = join(temporaryFolder(), 'qemu')
    const qemu = askedQemu(program, 'tcg')
    await writeFile(program, '')
    // Node reads no file of more than 2 GiB.
    for (const bytes of [2 ** 32, 2 ** 33, 1]) {
      await truncate(program, bytes)
      expect(await qemu.propertiesOf(NO_TYPES)).toEqual([])
    }
  })
})
