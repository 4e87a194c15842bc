import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { checkUnused, UIDS } from '../../../src/host/instance/machine/uid-range.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('the users of instances', () => {
  it.each([
    ['passwd', 'root:x:0:0::/:/bin/sh\nanne:x:1000:1000::/:/bin/sh\n', '1000 to anne'],
    ['group', 'none:x:\nstaff:x:1009:anne\n', '1009 to staff'],
    ['subuid', 'anne:100000:65536\nbert:500:501\n', '500 to bert'],
    ['subgid', 'bert:1009:65536\n', '1009 to bert'],
  ])('may not be those of %s', async (file, text, owner) => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, file), text)
    await expect(checkUnused({ first: 1000, count: 10 }, folder)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `uids: ${folder}/${file} gives ${owner}, want a range that nothing else has`,
    })
    for (const range of [
      { first: 1, count: 499 },
      { first: 80_000, count: 10 },
    ])
      await checkUnused(range, folder)
  })

  it('are by default of nothing else on this host', async () => {
    await expect(checkUnused(UIDS)).resolves.toBe(undefined)
  })
})
